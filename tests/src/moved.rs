//! Metrics of this process: each record, and which series have moved, by the names of the page `book/src/what-happens.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};

/// What a series records.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Record {
    /// A counter or a gauge changes by this.
    Added(f64),
    /// A counter or a gauge is this from now on.
    Set(f64),
    /// A histogram has one value more.
    Measured(f64),
}

/// Begins to watch, once in a process. `tell` is called when a series moves for the first time, such as
/// `lost_total{cause="expired"}`: of all locks together, and without the prefix that all names have.
///
/// A counter moves when it grows, a histogram with its first record, a gauge when it changes.
pub fn watch(tell: impl Fn(&str) + Send + Sync + 'static) {
    let state = Mutex::new(State::default());
    record(move |key, record| {
        let name = name(key);
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let moves = match record {
            Record::Added(by) => by != 0.0,
            Record::Set(value) => {
                let before = state.values.insert(name.clone(), value);
                before.is_some_and(|before| before != value)
            }
            Record::Measured(_) => true,
        };
        if moves && state.moved.insert(name.clone()) {
            tell(&name);
        }
    });
}

#[derive(Default)]
struct State {
    moved: BTreeSet<String>,
    /// Last value of each gauge that is set.
    values: BTreeMap<String, f64>,
}

/// The name of a series, of all locks together.
fn name(key: &Key) -> String {
    let labels = key.labels().filter(|label| label.key() != "lock");
    let mut labels: Vec<_> =
        labels.map(|label| format!("{}=\"{}\"", label.key(), label.value())).collect();
    labels.sort();
    let name = key.name();
    let name = name.strip_prefix("etcd_locked_").unwrap_or(name);
    match labels.as_slice() {
        [] => name.to_owned(),
        labels => format!("{name}{{{}}}", labels.join(",")),
    }
}

/// Begins to hand each record of this process to a function, once in a process.
pub fn record(take: impl Fn(&Key, Record) + Send + Sync + 'static) {
    metrics::set_global_recorder(Records(Arc::new(take)))
        .expect("the only recorder of this process");
}

type Take = Arc<dyn Fn(&Key, Record) + Send + Sync>;

/// The recorder of the process.
struct Records(Take);

struct Series {
    key: Key,
    take: Take,
}

impl Records {
    fn series(&self, key: &Key) -> Arc<Series> {
        Arc::new(Series { key: key.clone(), take: self.0.clone() })
    }
}

impl CounterFn for Series {
    fn increment(&self, value: u64) {
        (self.take)(&self.key, Record::Added(value as f64));
    }

    fn absolute(&self, value: u64) {
        (self.take)(&self.key, Record::Set(value as f64));
    }
}

impl GaugeFn for Series {
    fn increment(&self, value: f64) {
        (self.take)(&self.key, Record::Added(value));
    }

    fn decrement(&self, value: f64) {
        (self.take)(&self.key, Record::Added(-value));
    }

    fn set(&self, value: f64) {
        (self.take)(&self.key, Record::Set(value));
    }
}

impl HistogramFn for Series {
    fn record(&self, value: f64) {
        (self.take)(&self.key, Record::Measured(value));
    }
}

impl Recorder for Records {
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
