//! Row B13: what an annotated call costs on the embedded etcd, compared with what it cannot do without, two transactions, and what it
//! does without, hops to another thread and back.
//!
//! `orders/7` again and again, one task, batches of all rows in turn.

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use etcd_locked::etcd_client::{
    Client, Compare, CompareOp, DeleteOptions, GetOptions, PutOptions, SortOrder, SortTarget, Txn,
    TxnOp,
};
use etcd_locked::{Config, LockError, etcd_locked};
use etcd_locked_embedded::Etcd;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// Batches of each row, all rows in turn, so that whatever else the machine does hits all of them.
const BATCHES: usize = 25;
/// Operations a batch.
const OPERATIONS: u32 = 1_000;

#[etcd_locked("orders/<id>")]
async fn ship(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

/// What is measured.
#[derive(Clone, Copy)]
enum Work {
    Call,
    /// To another thread and back.
    Hop,
    /// The two transactions of a call, on the caller's thread.
    Transactions,
    /// The two transactions of a call on another thread, a hop for each.
    Both,
}

/// Whose task it is.
#[derive(Clone, Copy)]
enum Caller {
    CurrentThread,
    MultiThread,
}

struct Row {
    name: &'static str,
    work: Work,
    caller: Caller,
    /// The most an operation may take, in microseconds.
    target: Option<f64>,
    /// What it cannot do without, compared batch by batch.
    floor: Option<&'static str>,
}

const fn row(name: &'static str, work: Work, caller: Caller) -> Row {
    Row { name, work, caller, target: None, floor: None }
}

const TRANSACTIONS: &str = "the two transactions, on the caller's thread";
const BOTH: &str = "two hops with a transaction each, caller on a current-thread runtime";
const BOTH_MULTI: &str = "the same, multi-thread";

const ROWS: [Row; 7] = [
    Row {
        target: Some(20.0),
        floor: Some(TRANSACTIONS),
        ..row(
            "annotated call, caller on a current-thread runtime",
            Work::Call,
            Caller::CurrentThread,
        )
    },
    Row {
        target: Some(40.0),
        floor: Some(TRANSACTIONS),
        ..row("annotated call, caller on a multi-thread runtime", Work::Call, Caller::MultiThread)
    },
    row(BOTH, Work::Both, Caller::CurrentThread),
    row(BOTH_MULTI, Work::Both, Caller::MultiThread),
    row("one hop to another thread and back, current-thread", Work::Hop, Caller::CurrentThread),
    row("one hop, multi-thread", Work::Hop, Caller::MultiThread),
    row(TRANSACTIONS, Work::Transactions, Caller::CurrentThread),
];

/// A row's batches, in microseconds an operation.
pub(crate) struct Measured {
    pub(crate) name: &'static str,
    pub(crate) target: Option<f64>,
    pub(crate) floor: Option<&'static str>,
    pub(crate) micros: Vec<f64>,
}

/// All rows; the process's own engine is on the embedded etcd from then on.
pub(crate) fn measure() -> Result<Vec<Measured>> {
    let bench = Bench::start()?;
    for row in &ROWS {
        bench.batch(row)?; // connects, and fills caches
    }
    let mut measured = ROWS.each_ref().map(|row| Measured {
        name: row.name,
        target: row.target,
        floor: row.floor,
        micros: Vec::new(),
    });
    for _ in 0..BATCHES {
        for (row, measured) in ROWS.iter().zip(&mut measured) {
            let each = bench.batch(row)?.as_secs_f64() / f64::from(OPERATIONS);
            measured.micros.push(each * 1e6);
        }
    }
    Ok(measured.into())
}

struct Bench {
    current_thread: Runtime,
    multi_thread: Runtime,
    flat: ByHand,
    there: There,
}

impl Bench {
    fn start() -> Result<Self> {
        let current_thread = Builder::new_current_thread().enable_all().build()?;
        current_thread.block_on(etcd_locked::init(Config::embedded()))?;
        let flat = current_thread.block_on(ByHand::start())?;
        Ok(Self {
            there: There::start(flat.clone())?,
            flat,
            multi_thread: Builder::new_multi_thread().enable_all().build()?,
            current_thread,
        })
    }

    fn batch(&self, row: &Row) -> Result<Duration> {
        let (work, flat, there) = (row.work, self.flat.clone(), self.there.clone());
        let batch = async move {
            let start = Instant::now();
            for _ in 0..OPERATIONS {
                match work {
                    Work::Call => drop(ship(7).await?),
                    Work::Hop => there.ask(Errand::None).await?,
                    Work::Transactions => {
                        flat.put().await?;
                        flat.delete().await?;
                    }
                    Work::Both => {
                        there.ask(Errand::Put).await?;
                        there.ask(Errand::Delete).await?;
                    }
                }
            }
            Ok(start.elapsed())
        };
        match row.caller {
            Caller::CurrentThread => self.current_thread.block_on(batch),
            // A task, as handlers are: the thread in `block_on` is none of the runtime's workers.
            Caller::MultiThread => self.multi_thread.block_on(self.multi_thread.spawn(batch))?,
        }
    }
}

/// The same two transactions as those of an uncontended lock, without the engine. The delete's condition is a simpler one.
#[derive(Clone)]
struct ByHand {
    client: Client,
    lease: i64,
    session: i64,
}

const SESSION: &str = "flat%s/1";
const FAMILY: &str = "flat/orders/7/";
const KEY: &str = "flat/orders/7/1";
/// As long as a holder record.
const VALUE: [u8; 160] = [b'x'; 160];

impl ByHand {
    async fn start() -> Result<Self> {
        let client = Etcd::new().client().await;
        let lease = client.lease_client().grant(3_600, None).await?.id();
        let put = client.kv_client().put(SESSION, "", None).await?;
        let session = put.header().map_or(0, |header| header.revision());
        Ok(Self { client, lease, session })
    }

    async fn put(&self) -> Result<()> {
        let options = PutOptions::new().with_lease(self.lease).with_prev_key();
        let oldest = GetOptions::new()
            .with_prefix()
            .with_limit(1)
            .with_sort(SortTarget::Create, SortOrder::Ascend)
            .with_keys_only();
        let txn = Txn::new()
            .when([Compare::mod_revision(SESSION, CompareOp::Equal, self.session)])
            .and_then([TxnOp::put(KEY, VALUE, Some(options)), TxnOp::get(FAMILY, Some(oldest))])
            .or_else([TxnOp::get(SESSION, None)]);
        self.carry_out(txn).await
    }

    async fn delete(&self) -> Result<()> {
        let txn = Txn::new()
            .when([Compare::create_revision(KEY, CompareOp::Greater, 0)])
            .and_then([TxnOp::delete(KEY, Some(DeleteOptions::new()))])
            .or_else([TxnOp::get(KEY, None)]);
        self.carry_out(txn).await
    }

    async fn carry_out(&self, txn: Txn) -> Result<()> {
        let done = self.client.kv_client().txn(txn).await?;
        match done.succeeded() {
            true => Ok(()),
            false => Err("the flat transaction found another state than it left".into()),
        }
    }
}

/// Another thread, with a runtime like the engine's.
#[derive(Clone)]
struct There(mpsc::UnboundedSender<(Errand, oneshot::Sender<Result<()>>)>);

enum Errand {
    None,
    Put,
    Delete,
}

impl There {
    fn start(flat: ByHand) -> Result<Self> {
        let (errands, mut inbox) =
            mpsc::unbounded_channel::<(Errand, oneshot::Sender<Result<()>>)>();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("there".into()).spawn(move || {
            runtime.block_on(async {
                while let Some((errand, back)) = inbox.recv().await {
                    let done = match errand {
                        Errand::None => Ok(()),
                        Errand::Put => flat.put().await,
                        Errand::Delete => flat.delete().await,
                    };
                    let _ = back.send(done); // the bench may have failed
                }
            });
        })?;
        Ok(Self(errands))
    }

    async fn ask(&self, errand: Errand) -> Result<()> {
        let (back, answer) = oneshot::channel();
        self.0.send((errand, back)).map_err(|_| "the other thread has ended")?;
        answer.await?
    }
}
