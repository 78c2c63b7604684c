//! Row B13: what an annotated call costs on the embedded etcd, compared with what it needs, two transactions, and with what it
//! avoids, hops to another thread and back.
//!
//! One task locks `orders/7` repeatedly, in batches of all kinds of work in turn.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use etcd_locked::{Config, LockError, etcd_locked};
use etcd_locked_embedded::Etcd;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};

use super::Pace;
use super::figures::{Spread, Target, micros};
use super::row::{Line, Outcome};
use crate::Result;
use crate::worker::{Fault, Guarded, Owner};

/// Batches of each kind. All kinds take turns, so that other load of the machine affects all of them.
const BATCHES: usize = 25;
/// Operations per batch.
const OPERATIONS: u32 = 1_000;

#[etcd_locked("orders/<id>")]
async fn ship(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

/// Work that is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Call,
    /// The two transactions of a call, on the caller's thread.
    Here,
    /// The two transactions on another thread, with a hop there and back for each.
    There,
    Hop,
}

/// Title, work, whether the caller's runtime is a multi-thread one, and the limit of an operation, in microseconds.
const ROWS: [(&str, Work, bool, Option<Target>); 7] = [
    // The calls are compared with this one, batch by batch.
    ("the two transactions, on the caller's thread", Work::Here, false, None),
    ("annotated call", Work::Call, false, Some(Target::AtMost(20.0))),
    ("annotated call", Work::Call, true, Some(Target::AtMost(40.0))),
    ("two hops with a transaction each", Work::There, false, None),
    ("two hops with a transaction each", Work::There, true, None),
    ("one hop to another thread and back", Work::Hop, false, None),
    ("one hop to another thread and back", Work::Hop, true, None),
];

/// Measures the row. It leaves the process's engine on the embedded etcd.
pub(crate) fn run(_pace: &Pace) -> Result<Outcome> {
    let rows = measure().map_err(|error| error.to_string())?;
    let mut outcome = Outcome::default();
    for ((title, work, multi_thread, target), each) in ROWS.iter().zip(&rows) {
        let spread = Spread::of(each)?;
        let more: Vec<_> = each.iter().zip(&rows[0]).map(|(call, least)| call - least).collect();
        let (against, theirs) = match work {
            Work::Call => ("more than the two transactions", Spread::of(&more)?.shown(micros)),
            _ => ("", String::new()),
        };
        let runtime = if *multi_thread { "multi-thread" } else { "current-thread" };
        outcome.lines.push(Line {
            work: format!("{title}, caller on a {runtime} runtime"),
            ours: spread.shown(micros),
            against: against.to_owned(),
            theirs,
            figure: micros(spread.median),
            measured: spread.median,
            target: *target,
        });
    }
    outcome.notes.push(
        "a call is two transactions, on the caller's own thread; the rest is ours. Were it asked for and released on \
         another thread, there would be two hops more."
            .to_owned(),
    );
    Ok(outcome)
}

/// Returns the microseconds per operation, for each batch of each kind.
fn measure() -> Result<[Vec<f64>; ROWS.len()], Fault> {
    let current = Builder::new_current_thread().enable_all().build()?;
    let multi = Builder::new_multi_thread().enable_all().build()?;
    let here = current.block_on(async {
        etcd_locked::init(Config::embedded()).await?;
        let owner = Owner::new(&Etcd::new().client().await).await?;
        Guarded::new(owner, 7).await
    })?;
    let here = Arc::new(here);
    let there = There::start(here.clone())?;
    let mut measured = ROWS.map(|_| Vec::new());
    for number in 0..=BATCHES {
        for ((_, work, multi_thread, _), measured) in ROWS.iter().zip(&mut measured) {
            let batch = batch(*work, here.clone(), there.clone());
            let each = match multi_thread {
                false => current.block_on(batch)?,
                // In a task, like a handler: the thread in `block_on` is not a worker of the runtime.
                true => multi.block_on(multi.spawn(batch))??,
            };
            // The first batches connect, and fill caches.
            if number > 0 {
                measured.push(each);
            }
        }
    }
    Ok(measured)
}

/// Returns the microseconds per operation of one batch.
async fn batch(work: Work, here: Arc<Guarded>, there: There) -> Result<f64, Fault> {
    let start = Instant::now();
    for _ in 0..OPERATIONS {
        match work {
            Work::Call => drop(ship(7).await?),
            Work::Here => here.delete(here.put().await?).await?,
            Work::There => {
                let revision = there.ask(Step::Put).await?;
                there.ask(Step::Delete(revision)).await?;
            }
            Work::Hop => drop(there.ask(Step::Nothing).await?),
        }
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(OPERATIONS))
}

enum Step {
    Nothing,
    Put,
    /// Delete the keys that were put at this revision.
    Delete(i64),
}

/// Another thread, with a runtime like the engine's.
#[derive(Clone)]
struct There(mpsc::UnboundedSender<(Step, oneshot::Sender<Result<i64, Fault>>)>);

impl There {
    fn start(guarded: Arc<Guarded>) -> Result<Self, Fault> {
        let (steps, mut inbox) = mpsc::unbounded_channel::<(Step, oneshot::Sender<_>)>();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("there".into()).spawn(move || {
            runtime.block_on(async {
                while let Some((step, back)) = inbox.recv().await {
                    let done = match step {
                        Step::Nothing => Ok(0),
                        Step::Put => guarded.put().await,
                        Step::Delete(revision) => guarded.delete(revision).await.map(|()| 0),
                    };
                    let _ = back.send(done); // the bench may have failed
                }
            });
        })?;
        Ok(Self(steps))
    }

    async fn ask(&self, step: Step) -> Result<i64, Fault> {
        let (back, answer) = oneshot::channel();
        self.0.send((step, back)).map_err(|_| "the other thread has ended")?;
        answer.await?
    }
}
