//! Time that the proxies of a cluster add to a round trip.

use std::time::Duration;

use super::figures::time;
use crate::Result;
use crate::latency::Latency;

/// The two parts that a proxy lies between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Between {
    ClientAndMember,
    Members,
}

#[derive(Debug, Default)]
pub(crate) struct Trips {
    clients: Latency,
    members: Latency,
}

impl Trips {
    pub(crate) fn record(&mut self, between: Between, took: Duration) {
        match between {
            Between::ClientAndMember => self.clients.record(took),
            Between::Members => self.members.record(took),
        }
    }

    /// The median of what a proxy adds between a client and a member.
    pub(crate) fn median(&self) -> Result<Duration> {
        within(&self.clients, 0.5).map(Duration::from_secs_f64)
    }

    /// In words: the median and the 99th percentile, for both kinds.
    pub(crate) fn shown(&self) -> Result<String> {
        let shown = |trips: &Latency| -> Result<String> {
            let [half, most] = [within(trips, 0.5)?, within(trips, 0.99)?];
            Ok(format!("{} and {}", time(half), time(most)))
        };
        Ok(format!(
            "{} between client and member, {} between two members",
            shown(&self.clients)?,
            shown(&self.members)?
        ))
    }
}

fn within(trips: &Latency, share: f64) -> Result<f64> {
    let within = trips.quantile(share);
    within.ok_or_else(|| "no round trip was measured".to_owned())
}
