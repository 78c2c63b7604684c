//! How long calls took: a histogram of sixteen buckets for each doubling, so that a figure is right to 2.2 %.
//!
//! Workers in other languages count in the same buckets.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

const PER_DOUBLING: f64 = 16.0;

/// By bucket, how many calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Latency(BTreeMap<u16, u64>);

impl Latency {
    pub(crate) fn record(&mut self, took: Duration) {
        let nanos = (took.as_nanos() as f64).max(1.0);
        let bucket = (nanos.log2() * PER_DOUBLING) as u16;
        *self.0.entry(bucket).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (bucket, count) in &other.0 {
            *self.0.entry(*bucket).or_default() += count;
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.values().sum()
    }

    /// The middle of the bucket in which this share of all calls, from the fastest on, has ended; in seconds.
    pub(crate) fn quantile(&self, share: f64) -> Option<f64> {
        let wanted = ((self.count() as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        self.0.iter().find_map(|(bucket, count)| {
            seen += count;
            (seen >= wanted).then(|| middle(*bucket))
        })
    }

    /// Points of the distribution: seconds, and the share of calls that took longer.
    pub(crate) fn tail(&self) -> Vec<(f64, f64)> {
        let all = self.count() as f64;
        let mut seen = 0;
        let points = self.0.iter().map(|(bucket, count)| {
            seen += count;
            (middle(*bucket), 1.0 - seen as f64 / all)
        });
        points.collect()
    }

    pub(crate) fn to_json(&self) -> Value {
        let pairs = self.0.iter();
        Value::Object(pairs.map(|(b, n)| (b.to_string(), (*n).into())).collect())
    }

    pub(crate) fn from_json(json: &Map<String, Value>) -> Option<Self> {
        let pairs = json
            .iter()
            .map(|(b, n)| Some((b.parse().ok()?, n.as_u64()?)));
        pairs.collect::<Option<_>>().map(Self)
    }
}

/// In seconds.
fn middle(bucket: u16) -> f64 {
    ((f64::from(bucket) + 0.5) / PER_DOUBLING).exp2() * 1e-9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_near_what_was_recorded() {
        let mut latency = Latency::default();
        for millis in 1..=100 {
            latency.record(Duration::from_millis(millis));
        }
        for (share, millis) in [(0.5, 50.0), (0.99, 99.0), (1.0, 100.0), (0.0, 1.0)] {
            let found = latency.quantile(share).unwrap() * 1e3;
            assert!((found / millis - 1.0).abs() < 0.025, "{share}: {found}");
        }
        assert_eq!(Latency::default().quantile(0.5), None);
    }

    #[test]
    fn json_gives_back_what_it_was_given() {
        let mut latency = Latency::default();
        latency.record(Duration::from_micros(700));
        latency.record(Duration::ZERO);
        let json = latency.to_json();
        assert_eq!(Latency::from_json(json.as_object().unwrap()), Some(latency));
    }
}
