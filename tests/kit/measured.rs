//! Metrics (feature `metrics`): which series are recorded, under which names.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etcd_locked::{LockError, etcd_locked, testing};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};

/// Recorder of all series by name and labels: the number of records, and their sum.
#[derive(Debug, Default, Clone)]
struct Recorded(Arc<Mutex<BTreeMap<String, (u64, f64)>>>);

struct Series {
    key: String,
    recorded: Recorded,
}

impl Recorded {
    fn series(&self, key: &Key) -> Arc<Series> {
        let mut labels: Vec<_> = key
            .labels()
            .map(|it| format!("{}={}", it.key(), it.value()))
            .collect();
        labels.sort();
        Arc::new(Series {
            key: format!("{} {}", key.name(), labels.join(" ")),
            recorded: self.clone(),
        })
    }

    fn of(&self, key: &str) -> Option<(u64, f64)> {
        let series = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        series.get(key).copied()
    }
}

impl Series {
    fn add(&self, value: f64) {
        let mut series = (self.recorded.0.lock()).unwrap_or_else(PoisonError::into_inner);
        let (count, sum) = series.entry(self.key.clone()).or_default();
        *count += 1;
        *sum += value;
    }
}

impl CounterFn for Series {
    fn increment(&self, value: u64) {
        self.add(value as f64);
    }

    fn absolute(&self, _: u64) {}
}

impl GaugeFn for Series {
    fn increment(&self, value: f64) {
        self.add(value);
    }

    fn decrement(&self, value: f64) {
        self.add(-value);
    }

    fn set(&self, _: f64) {}
}

impl HistogramFn for Series {
    fn record(&self, value: f64) {
        self.add(value);
    }
}

impl Recorder for Recorded {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.series(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.series(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.series(key))
    }
}

#[etcd_locked("measured/<id>", wait = "5s")]
async fn measured(id: u64) -> Result<(), LockError> {
    std::future::pending().await
}

#[tokio::test]
async fn records_waits_holds_losses_and_waiters() -> Result<(), LockError> {
    let recorded = Recorded::default();
    metrics::set_global_recorder(recorded.clone()).expect("no other test here records");
    let etcd = testing::start().await?;
    let holder = tokio::spawn(measured(7));
    assert_eq!(etcd.held().await, ["measured/7"]);
    let waiter = tokio::spawn(measured(7));
    assert_eq!(etcd.waiting().await, ["measured/7"]);
    let waiting = recorded.of("etcd_locked_waiters lock=measured/<id>");
    assert_eq!(waiting.map(|it| it.1), Some(1.0));
    etcd.advance(Duration::from_secs(5)).await;
    let late = waiter.await.expect("no panic");
    assert!(matches!(late, Err(LockError::Timeout { .. })), "{late:?}");
    etcd.lose("measured/7").await.expect("it is held");
    let lost = holder.await.expect("no panic");
    assert!(matches!(lost, Err(LockError::Lost { .. })), "{lost:?}");

    let of = |key: &str| {
        recorded
            .of(key)
            .unwrap_or_else(|| panic!("{key}: {recorded:#?}"))
    };
    assert_eq!(of("etcd_locked_waiters lock=measured/<id>"), (4, 0.0));
    let granted = of("etcd_locked_wait_seconds lock=measured/<id> outcome=granted");
    assert_eq!(granted.0, 1);
    let (count, waited) = of("etcd_locked_wait_seconds lock=measured/<id> outcome=timeout");
    assert!(count == 1 && waited >= 5.0, "{waited}");
    let (count, held) = of("etcd_locked_hold_seconds lock=measured/<id>");
    assert!(count == 1 && held >= 5.0, "{held}");
    assert_eq!(
        of("etcd_locked_lost_total cause=deleted lock=measured/<id>"),
        (1, 1.0)
    );
    Ok(())
}
