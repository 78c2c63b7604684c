//! Metrics (feature `metrics`): which series are recorded, under which names.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;

use etcd_locked::{LockError, Token, current, etcd_locked, testing};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};

/// The number of records of each series, and their sum, by its name and labels.
static RECORDED: Mutex<BTreeMap<String, (u64, f64)>> = Mutex::new(BTreeMap::new());

/// Begins to record, for all tests here: each has a template of its own.
fn record() {
    static RECORDS: Once = Once::new();
    RECORDS.call_once(|| metrics::set_global_recorder(Records).expect("the only recorder"));
}

/// The number of records of a series, and their sum.
fn of(key: &str) -> (u64, f64) {
    let recorded = RECORDED.lock().unwrap_or_else(PoisonError::into_inner);
    let of = recorded.get(key).copied();
    of.unwrap_or_else(|| panic!("{key}: {recorded:#?}"))
}

struct Records;

/// A series, by its name and labels.
struct Series(String);

impl Series {
    fn of(key: &Key) -> Arc<Self> {
        let labels = key.labels().map(|it| format!("{}={}", it.key(), it.value()));
        let mut labels: Vec<_> = labels.collect();
        labels.sort();
        Arc::new(Self(format!("{} {}", key.name(), labels.join(" "))))
    }

    fn note(&self, note: impl FnOnce(&mut (u64, f64))) {
        let mut recorded = RECORDED.lock().unwrap_or_else(PoisonError::into_inner);
        note(recorded.entry(self.0.clone()).or_default());
    }

    fn add(&self, value: f64) {
        self.note(|(count, sum)| (*count, *sum) = (*count + 1, *sum + value));
    }
}

impl CounterFn for Series {
    fn increment(&self, value: u64) {
        self.add(value as f64);
    }

    fn absolute(&self, value: u64) {
        self.note(|it| *it = (1, value as f64));
    }
}

impl GaugeFn for Series {
    fn increment(&self, value: f64) {
        self.add(value);
    }

    fn decrement(&self, value: f64) {
        self.add(-value);
    }

    fn set(&self, value: f64) {
        self.note(|it| *it = (1, value));
    }
}

impl HistogramFn for Series {
    fn record(&self, value: f64) {
        self.add(value);
    }
}

impl Recorder for Records {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Series::of(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Series::of(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Series::of(key))
    }
}

#[etcd_locked("measured/<id>", wait = "5s")]
async fn measured(id: u64) -> Result<(), LockError> {
    std::future::pending().await
}

#[tokio::test]
async fn records_waits_holds_losses_and_waiters() -> Result<(), LockError> {
    record();
    let etcd = testing::start().await?;
    let holder = tokio::spawn(measured(7));
    assert_eq!(etcd.held().await, ["measured/7"]);
    assert_eq!(of("etcd_locked_held lock=measured/<id>").1, 1.0);
    let waiter = tokio::spawn(measured(7));
    assert_eq!(etcd.waiting().await, ["measured/7"]);
    assert_eq!(of("etcd_locked_waiters lock=measured/<id>").1, 1.0);
    etcd.advance(Duration::from_secs(5)).await;
    let late = waiter.await.expect("no panic");
    assert_matches!(late, Err(LockError::Timeout { .. }));
    let lost = "etcd_locked_lost_total cause=gone lock=measured/<id>";
    assert_eq!(of(lost).1, 0.0, "there before the first loss");
    etcd.lose("measured/7").await.expect("it is held");
    let ended = holder.await.expect("no panic");
    assert_matches!(ended, Err(LockError::Lost { .. }));

    assert_eq!(of("etcd_locked_waiters lock=measured/<id>").1, 0.0);
    assert_eq!(of("etcd_locked_held lock=measured/<id>").1, 0.0);
    let granted = of("etcd_locked_wait_seconds lock=measured/<id> outcome=granted");
    assert_eq!(granted.0, 1);
    let (count, waited) = of("etcd_locked_wait_seconds lock=measured/<id> outcome=timeout");
    assert!(count == 1 && waited >= 5.0, "{waited}");
    let (count, held) = of("etcd_locked_hold_seconds lock=measured/<id>");
    assert!(count == 1 && held >= 5.0, "{held}");
    assert_eq!(of(lost).1, 1.0);
    Ok(())
}

#[etcd_locked("outcomes/<id>", wait = "none")]
async fn tried(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("outcomes/<id>", wait = "1m")]
async fn awaited(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("outcomes/<id>", wait = "1m")]
async fn nested(id: u64, next: u64) -> Result<(), LockError> {
    tokio::task::yield_now().await; // the other has its own by then
    awaited(next).await
}

#[tokio::test]
async fn records_how_each_wait_ended() -> Result<(), LockError> {
    record();
    let etcd = testing::start().await?;
    let count = |outcome: &str| {
        of(&format!("etcd_locked_wait_seconds lock=outcomes/<id> outcome={outcome}")).0
    };
    let holder = etcd.locks().lock("outcomes/7").await?;
    let held = tried(7).await;
    assert_matches!(held, Err(LockError::Held { .. }));
    assert_eq!(count("held"), 1);

    let gone = tokio::spawn(awaited(7));
    assert_eq!(etcd.waiting().await, ["outcomes/7"]);
    gone.abort();
    assert!(gone.await.expect_err("it was aborted").is_cancelled());
    assert_eq!(count("dropped"), 1);

    etcd.partition();
    let cut_off = tokio::spawn(awaited(8));
    etcd.advance(Duration::from_secs(15)).await;
    let failed = cut_off.await.expect("no panic");
    assert_matches!(failed, Err(LockError::Backend { .. }));
    assert_eq!(count("failed"), 1);
    etcd.heal();
    drop(holder);

    etcd.allow_order_inversions();
    let first = tokio::spawn(nested(1, 2));
    let second = tokio::spawn(nested(2, 1));
    etcd.advance(Duration::from_secs(10)).await;
    let ended = [first.await.expect("no panic"), second.await.expect("no panic")];
    let refused = ended.iter().filter_map(|ended| ended.as_ref().err());
    assert!(matches!(*refused.collect::<Vec<_>>(), [LockError::Deadlock { .. }]), "{ended:?}");
    assert_eq!(count("deadlock"), 1);
    assert_eq!(of("etcd_locked_deadlocks_total lock=outcomes/<id>").1, 1.0);
    Ok(())
}

#[etcd_locked("handed/<id>", wait = "1m")]
async fn handed(id: u64) -> Result<Token, LockError> {
    Ok(current().expect("a lock").token())
}

#[tokio::test]
async fn counts_hand_overs_in_the_process_and_from_others() -> Result<(), LockError> {
    record();
    let etcd = testing::start().await?;
    let count =
        |kind: &str| of(&format!("etcd_locked_handovers_total kind={kind} lock=handed/<id>")).1;
    handed(7).await?;
    assert_eq!((count("local"), count("remote")), (0.0, 0.0));

    let mine = etcd.locks().lock("handed/7").await?;
    let token = mine.token();
    let next = tokio::spawn(handed(7));
    assert_eq!(etcd.waiting().await, ["handed/7"]);
    mine.release().await?;
    let next = next.await.expect("no panic")?;
    assert_eq!(next.revision(), token.revision());
    assert_eq!(next.handover(), token.handover() + 1);
    assert!(next.as_i64() > token.as_i64());
    assert_eq!((count("local"), count("remote")), (1.0, 0.0));

    let other = etcd.second().await?;
    let theirs = other.lock("handed/8").await?;
    let next = tokio::spawn(handed(8));
    assert_eq!(etcd.waiting().await, ["handed/8"]);
    theirs.release().await?;
    etcd.advance(Duration::from_secs(1)).await;
    next.await.expect("no panic")?;
    assert_eq!((count("local"), count("remote")), (1.0, 1.0));

    let asked = |kind: &str| of(&format!("etcd_locked_request_seconds kind={kind} outcome=ok")).0;
    assert!(asked("grant") > 0 && asked("write") > 0);
    Ok(())
}
