//! Moved metrics: which series of this process have moved, by the names of the page `book/src/what-happens.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};

/// Begins to watch, once in a process. `tell` is called when a series moves for the first time, such as
/// `lost_total{cause="expired"}`: of all locks together, and without the prefix that all names have.
///
/// A counter moves when it grows, a histogram with its first record, a gauge when it changes.
pub fn watch(tell: impl Fn(&str) + Send + Sync + 'static) {
    let watched = Watched(Arc::new(Inner {
        tell: Box::new(tell),
        state: Mutex::default(),
    }));
    metrics::set_global_recorder(watched).expect("the only recorder of this process");
}

/// The recorder of the process.
struct Watched(Arc<Inner>);

struct Inner {
    tell: Box<dyn Fn(&str) + Send + Sync>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    moved: BTreeSet<String>,
    /// Last value of each gauge that is set.
    values: BTreeMap<String, f64>,
}

struct Series {
    name: String,
    of: Arc<Inner>,
}

impl Watched {
    fn series(&self, key: &Key) -> Arc<Series> {
        let labels = key.labels().filter(|label| label.key() != "lock");
        let mut labels: Vec<_> = labels
            .map(|label| format!("{}=\"{}\"", label.key(), label.value()))
            .collect();
        labels.sort();
        let name = key.name();
        let name = name.strip_prefix("etcd_locked_").unwrap_or(name);
        Arc::new(Series {
            name: match labels.as_slice() {
                [] => name.to_owned(),
                labels => format!("{name}{{{}}}", labels.join(",")),
            },
            of: self.0.clone(),
        })
    }
}

impl Series {
    fn moves(&self) {
        let mut state = self.of.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.moved.insert(self.name.clone()) {
            (self.of.tell)(&self.name);
        }
    }
}

impl CounterFn for Series {
    fn increment(&self, value: u64) {
        if value > 0 {
            self.moves();
        }
    }

    fn absolute(&self, _: u64) {
        self.moves();
    }
}

impl GaugeFn for Series {
    fn increment(&self, value: f64) {
        if value != 0.0 {
            self.moves();
        }
    }

    fn decrement(&self, value: f64) {
        GaugeFn::increment(self, value);
    }

    fn set(&self, value: f64) {
        let mut state = self.of.state.lock().unwrap_or_else(PoisonError::into_inner);
        let before = state.values.insert(self.name.clone(), value);
        drop(state);
        if before.is_some_and(|before| before != value) {
            self.moves();
        }
    }
}

impl HistogramFn for Series {
    fn record(&self, _: f64) {
        self.moves();
    }
}

impl Recorder for Watched {
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
