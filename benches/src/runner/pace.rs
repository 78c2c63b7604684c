//! How long and how often is measured.

use std::time::Duration;

use super::crew::Kind;

#[derive(Clone, Debug)]
pub(crate) struct Pace {
    /// Rounds in which ours and each peer measure in turn.
    pub(crate) pairs: usize,
    /// Of each of them.
    pub(crate) window: Duration,
    /// B7: how long locks are held.
    pub(crate) held: Duration,
    /// B8: names, each once.
    pub(crate) distinct: u32,
    /// B8: calls that wait at once.
    pub(crate) waiters: u32,
    /// B10: how long.
    pub(crate) endurance: Duration,
    /// B14: tasks of both processes together.
    pub(crate) nested: &'static [usize],
    /// B15: tries at once.
    pub(crate) tries: u32,
    /// B16: locks held, each of them with the one before.
    pub(crate) shutdowns: &'static [u32],
    /// B17: names, each once.
    pub(crate) retained: u32,
    /// B19: processes of one name.
    pub(crate) herd: &'static [usize],
    /// B20: how often its programs are started.
    pub(crate) starts: usize,
    /// B20: batches of each program and start.
    pub(crate) batches: usize,
    /// Only these, while one works on something; all, if there are none.
    pub(crate) peers: Vec<Kind>,
}

impl Pace {
    pub(crate) fn full() -> Self {
        Self {
            pairs: 5,
            window: Duration::from_secs(3),
            held: Duration::from_secs(60),
            distinct: 1_000_000,
            waiters: 100_000,
            endurance: Duration::from_secs(600),
            nested: &[100, 200, 400, 800],
            tries: 10_000,
            shutdowns: &[1_000, 10_000, 100_000],
            retained: 100_000,
            herd: &[2, 16, 64, 256],
            starts: 8,
            batches: 100,
            peers: Vec::new(),
        }
    }

    /// All rows in less than five minutes once all is built, some of them with fewer tasks and locks: their lines say how many.
    pub(crate) fn quick() -> Self {
        Self {
            pairs: 2,
            window: Duration::from_millis(300),
            held: Duration::from_secs(5),
            distinct: 20_000,
            endurance: Duration::from_secs(10),
            nested: &[100],
            tries: 4_000,
            shutdowns: &[1_000, 10_000],
            retained: 10_000,
            herd: &[16, 64],
            starts: 2,
            batches: 20,
            ..Self::full()
        }
    }

    /// Whether this peer takes part.
    pub(crate) fn meets(&self, kind: Kind) -> bool {
        self.peers.is_empty() || self.peers.contains(&kind)
    }
}
