//! Latency of calls: a histogram whose figures are right to 1 %.
//!
//! Workers in other languages respond as [`Latency::to_json`] does, rounded to 10 µs.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Map, Value};

/// Histogram in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Latency(Histogram<u64>);

impl Default for Latency {
    fn default() -> Self {
        Self(Histogram::new(2).expect("two digits are not too many"))
    }
}

impl Latency {
    pub(crate) fn record(&mut self, took: Duration) {
        self.0 += took.as_nanos() as u64;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.0 += &other.0;
    }

    /// Returns points of the distribution: seconds, and the share of calls that took longer.
    pub(crate) fn tail(&self) -> impl Iterator<Item = (f64, f64)> {
        let points = self.0.iter_recorded();
        points.map(|point| (seconds(point.value_iterated_to()), 1.0 - point.quantile()))
    }

    /// Returns the histogram: each time in nanoseconds, and how many calls took it.
    pub(crate) fn to_json(&self) -> Value {
        let points = self.0.iter_recorded().map(|point| {
            let (nanos, calls) = (point.value_iterated_to(), point.count_at_value());
            (nanos.to_string(), calls.into())
        });
        Value::Object(points.collect())
    }

    pub(crate) fn from_json(json: &Map<String, Value>) -> Option<Self> {
        let mut latency = Self::default();
        for (nanos, calls) in json {
            let (nanos, calls) = (nanos.parse().ok()?, calls.as_u64()?);
            latency.0.record_n(nanos, calls).ok()?;
        }
        Some(latency)
    }
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tail_is_near_what_was_recorded_and_sent() {
        let [mut latency, mut others] = [Latency::default(), Latency::default()];
        for millis in 1..=50 {
            latency.record(Duration::from_millis(millis));
            others.record(Duration::from_millis(50 + millis));
        }
        let sent = others.to_json();
        latency.add(&Latency::from_json(sent.as_object().unwrap()).unwrap());
        let tail: Vec<_> = latency.tail().collect();
        assert_eq!(tail.len(), 100);
        for ((seconds, longer), millis) in tail.into_iter().zip(1..) {
            let millis = f64::from(millis);
            assert!((seconds * 1e3 / millis - 1.0).abs() < 0.01, "{millis}: {seconds}");
            assert!((longer - (1.0 - millis / 100.0)).abs() < 0.001, "{millis}: {longer}");
        }
    }
}
