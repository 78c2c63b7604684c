//! Options that are expressions over arguments or a configuration: each call evaluates and checks them once.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use etcd_locked::{LockError, Locks, etcd_locked};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::corner::{Corner, pass, refused_after_its_wait};
use crate::limit::{self, PATIENCE, within};
use crate::under::with_locks;

const REGION: &str = "smtp/eu";

/// Limits that a service reads from a file.
struct Limits {
    permits: u16,
    wait: Duration,
    ttl: Duration,
    most: Duration,
    least: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            permits: 2,
            wait: PATIENCE,
            ttl: Duration::from_secs(15),
            most: PATIENCE,
            least: Duration::ZERO,
        }
    }
}

#[etcd_locked(
    "smtp/<region>",
    locks = locks,
    permits = limits.permits,
    wait = limits.wait,
    ttl = limits.ttl,
    max_hold = limits.most,
    min_hold = limits.least
)]
async fn send(
    locks: &Locks,
    region: &str,
    limits: &Limits,
    inside: &Notify,
    leave: &Notify,
) -> Result<(), LockError> {
    inside.notify_one();
    leave.notified().await;
    Ok(())
}

/// Makes a call whose body ends at once.
async fn pass_by(locks: &Locks, limits: &Limits) -> Result<(), LockError> {
    let leave = Notify::new();
    leave.notify_one();
    send(locks, "eu", limits, &Notify::new(), &leave).await
}

#[limit::test]
async fn options_are_as_the_configuration_says() {
    let (corner, [mine, theirs]) = Corner::with_engines().await;
    let short = Duration::from_secs(1);
    let two = Limits { ttl: Duration::from_secs(7), ..Limits::default() };
    let full = Limits { wait: short, ..Limits::default() };
    let none = Limits { wait: Duration::ZERO, ..Limits::default() };
    let three = Limits { permits: 3, ..Limits::default() };
    let (inside, leave) = (Notify::new(), [Notify::new(), Notify::new()]);
    let holders = async {
        tokio::join!(
            send(&mine, "eu", &two, &inside, &leave[0]),
            send(&theirs, "eu", &two, &inside, &leave[1])
        )
    };
    let others = async {
        corner.until_contenders(REGION, 2).await;
        for lease in corner.leases(REGION).await {
            let lease = corner.client.clone().lease_time_to_live(lease, None).await;
            assert_eq!(lease.expect("etcd answers").granted_ttl(), 7);
        }
        let call = async || pass_by(&theirs, &full).await;
        let refused = refused_after_its_wait("the end of the wait", call).await;
        let LockError::Timeout { waited, .. } = &refused else { panic!("{refused:?}") };
        assert!(*waited >= short, "{waited:?}");
        // A wait of zero is a single try.
        let refused = within("the refusal", pass_by(&mine, &none)).await;
        assert_matches!(refused, Err(LockError::Held { .. }));
        pass_by(&theirs, &three).await.expect("a third permit");
        leave.iter().for_each(Notify::notify_one);
    };
    let ((one, other), ()) = within("both calls", async { tokio::join!(holders, others) }).await;
    one.and(other).expect("held");
    let brief = Limits { most: Duration::from_millis(100), ..Limits::default() };
    let never = Notify::new();
    let ended = within("the hold limit", send(&mine, "eu", &brief, &inside, &never)).await;
    assert_matches!(ended, Err(LockError::HoldLimit { .. }));
    // Retention: the body has gone, and the name stays locked.
    let kept = Limits { permits: 1, least: Duration::from_secs(3), ..Limits::default() };
    let began = Instant::now();
    pass_by(&mine, &kept).await.expect("held");
    pass("the next lock", theirs.lock(REGION)).await;
    assert!(began.elapsed() >= kept.least, "{:?}", began.elapsed());
    corner.until_empty().await;
}

#[test]
fn a_value_out_of_range_is_an_error_of_the_configuration() {
    with_locks(async |locks| {
        const SECOND: Duration = Duration::from_secs(1);
        const YEAR: Duration = Duration::from_secs(366 * 24 * 3600);
        type Change = fn(&mut Limits);
        let cases: [(Change, &str); 6] = [
            (|it| it.permits = 0, "0 permits are out of range: use 1 to 1024"),
            (|it| it.permits = 1025, "1025 permits are out of range: use 1 to 1024"),
            (|it| it.ttl = SECOND, "ttl 1s: must be from 2s to 300s"),
            (|it| it.ttl = 301 * SECOND, "ttl 301s: must be from 2s to 300s"),
            (
                |it| (it.least, it.most) = (6 * SECOND, 5 * SECOND),
                "min_hold 6s is longer than max_hold 5s: shorten it, or give the body longer",
            ),
            (
                |it| (it.least, it.most) = (YEAR, 2 * YEAR),
                "min_hold 31622400s: must be a year at most",
            ),
        ];
        for (change, wrong) in cases {
            let mut limits = Limits::default();
            change(&mut limits);
            let error = pass_by(locks, &limits).await.expect_err(wrong);
            assert_matches!(error, LockError::Config { .. });
            let wanted = format!("bad configuration: lock `smtp/<region>`: {wrong}");
            assert_eq!(error.to_string(), wanted);
            assert!(!error.is_retryable());
        }
        let forever = Limits { wait: Duration::MAX, most: Duration::MAX, ..Limits::default() };
        pass_by(locks, &forever).await.expect("no number overflows");
        let nothing = Limits { most: Duration::ZERO, ..Limits::default() };
        let ended = pass_by(locks, &nothing).await;
        assert_matches!(ended, Err(LockError::HoldLimit { .. }));
    });
}

/// Records what is evaluated, in order.
struct Said(Mutex<Vec<&'static str>>);

impl Said {
    fn note<T>(&self, what: &'static str, value: T) -> T {
        self.0.lock().expect("no panic").push(what);
        value
    }

    fn all(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.0.lock().expect("no panic"))
    }
}

#[etcd_locked(
    said.note("name", "orders/7"),
    said.note("another name", "orders/8"),
    permits = said.note("permits", 5),
    min_hold = said.note("min_hold", Duration::ZERO),
    max_hold = said.note("max_hold", PATIENCE),
    ttl = said.note("ttl", Duration::from_secs(15)),
    wait = said.note("wait", PATIENCE),
    wait_until = said.note("wait_until", Instant::now() + PATIENCE),
    locks = said.note("locks", locks),
    when = said.note("when", wanted),
)]
async fn noted(locks: &Locks, said: &Said, wanted: bool) -> Result<(), LockError> {
    said.note("body", ());
    Ok(())
}

#[test]
fn expressions_are_evaluated_once_in_the_order_of_the_docs() {
    with_locks(async |locks| {
        let said = Said(Mutex::default());
        noted(locks, &said, true).await.expect("held");
        let names = ["when", "name", "another name"];
        let options = ["wait", "ttl", "max_hold", "min_hold", "permits", "locks", "wait_until"];
        assert_eq!(said.all(), [&names[..], &options, &["body"]].concat());
        noted(locks, &said, false).await.expect("no lock");
        assert_eq!(said.all(), ["when", "body"]);
    });
}

/// The expression locks a mutex of std. While the call waits for its lock, it does not keep that mutex locked.
#[etcd_locked("orders/<id>", locks = locks, wait = limits.lock().expect("no panic").wait, permits = limits.lock().expect("no panic").permits)]
async fn borrowed(locks: &Locks, id: u64, limits: &Mutex<Limits>) -> Result<u16, LockError> {
    sleep(Duration::from_millis(1)).await;
    let mut limits = limits.try_lock().expect("no call holds it");
    limits.permits += 1;
    Ok(limits.permits)
}

/// The body moves what the expressions only read, and changes what they borrow.
#[etcd_locked("orders/<id>", locks = &locks, permits = limits.permits, wait = *waits.last().unwrap_or(&limits.wait))]
async fn taken(
    locks: Locks,
    id: u64,
    limits: Limits,
    waits: &mut Vec<Duration>,
) -> Result<Limits, LockError> {
    waits.push(limits.wait);
    drop(locks);
    Ok(limits)
}

/// The number may come from a server, because an expression may await.
#[etcd_locked("orders/<id>", locks = locks, permits = asked(calls).await?)]
async fn awaited(locks: &Locks, id: u64, calls: &AtomicU32) -> Result<(), LockError> {
    Ok(())
}

async fn asked(calls: &AtomicU32) -> Result<u16, LockError> {
    tokio::task::yield_now().await;
    match calls.fetch_add(1, Ordering::SeqCst) {
        0 => Ok(3),
        _ => Err(LockError::ShuttingDown),
    }
}

#[test]
fn an_expression_keeps_nothing_borrowed_over_the_body() {
    fn is_send<T: Send>(future: T) -> T {
        future
    }
    with_locks(async |locks| {
        let limits = Mutex::new(Limits::default());
        let permits = is_send(borrowed(locks, 7, &limits)).await.expect("held");
        assert_eq!(permits, 3);
        let mut waits = Vec::new();
        let back = is_send(taken(locks.clone(), 7, Limits::default(), &mut waits)).await;
        assert_eq!(waits, [back.expect("held").wait]);
        let calls = AtomicU32::new(0);
        is_send(awaited(locks, 7, &calls)).await.expect("held");
        let refused = awaited(locks, 7, &calls).await;
        assert_matches!(refused, Err(LockError::ShuttingDown));
        assert_eq!(calls.into_inner(), 2, "each call asks once");
    });
}
