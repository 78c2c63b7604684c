//! Metrics of this process: each record of each series.

use std::sync::Arc;

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
