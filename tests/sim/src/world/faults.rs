//! Faults: the probability of each, drawn from the seed.

use std::time::Duration;

use super::random::Random;

/// All zero: no faults. Each seed leaves some out, so that one fault does not hide the effects of another.
#[derive(Debug, Default, Clone)]
pub(crate) struct Faults {
    pub(crate) lost: f64,
    pub(crate) answer_lost: f64,
    /// Arrives after its process has given it up.
    pub(crate) late: f64,
    pub(crate) not_reached: f64,
    pub(crate) slow: f64,
    /// The share of these that take only a fraction of a second longer.
    pub(crate) brief: f64,
    pub(crate) twice: f64,
    pub(crate) stale: f64,
    pub(crate) silent: f64,
    pub(crate) lagging: f64,
    /// Processes stop in the middle of a renewal.
    pub(crate) stops: f64,
    /// Processes stop, are cut off, crash.
    pub(crate) hard: f64,
    /// The leader changes.
    pub(crate) leader: f64,
    /// An operator deletes, overwrites, revokes.
    pub(crate) operator: f64,
    pub(crate) wipe: f64,
    pub(crate) compact: f64,
    /// etcd reaches its quota. It applies the writes that cross it, although it refuses them.
    pub(crate) full: f64,
    /// etcd is restored from a snapshot.
    pub(crate) restore: f64,
    /// etcd's user may not write some keys for a while.
    pub(crate) denied: f64,
    /// The sessions of a process end while it shuts down.
    pub(crate) ends: f64,
}

/// The fate of one exchange with etcd.
#[derive(Debug)]
pub(crate) struct Trip {
    pub(crate) there: Duration,
    pub(crate) back: Duration,
    pub(crate) slow: bool,
    pub(crate) lost: bool,
    pub(crate) answer_lost: bool,
    pub(crate) late: Option<Duration>,
    pub(crate) not_reached: bool,
    /// Delivered again, a little later.
    pub(crate) twice: Option<Duration>,
}

impl Faults {
    pub(crate) fn drawn(random: &mut Random) -> Self {
        let mut share = |of: &[f64]| random.one(of);
        Self {
            lost: share(&[0.0, 0.01, 0.05, 0.2]),
            answer_lost: share(&[0.0, 0.01, 0.05, 0.2]),
            late: share(&[0.0, 0.0, 0.02, 0.1]),
            not_reached: share(&[0.0, 0.0, 0.02, 0.1]),
            slow: share(&[0.0, 0.02, 0.1, 0.3]),
            brief: 0.7,
            twice: share(&[0.0, 0.05, 0.2]),
            stale: share(&[0.0, 0.0, 0.05, 0.3]),
            silent: share(&[0.0, 0.1, 0.5]),
            lagging: share(&[0.0, 0.05, 0.3]),
            stops: share(&[0.0, 0.02, 0.1]),
            hard: share(&[0.0, 0.0, 0.2, 1.0]),
            leader: share(&[0.0, 0.0, 0.1, 0.5]),
            operator: share(&[0.0, 0.0, 0.3, 1.0]),
            wipe: share(&[0.0, 0.0, 0.0, 0.05]),
            compact: share(&[0.0, 0.3, 1.0]),
            ..Self::default()
        }
    }

    /// Draws the faults of backups, shutdowns, quota and users. Drawn separately, they leave a seed's other choices as they were.
    pub(crate) fn draw_others(&mut self, random: &mut Random) {
        let mut share = |of: &[f64]| random.one(of);
        self.restore = share(&[0.0, 0.0, 0.0, 0.1]);
        self.ends = share(&[0.0, 0.5, 1.0]);
        self.full = share(&[0.0, 0.0, 0.3]);
        self.denied = share(&[0.0, 0.0, 0.3]);
    }

    /// Returns faults that only delay this share of messages a little.
    pub(crate) fn slow(share: f64) -> Self {
        Self { slow: share, brief: 1.0, ..Self::default() }
    }

    pub(crate) fn trip(&self, random: &mut Random) -> Trip {
        let slow = random.chance(self.slow);
        let mut way = || match slow {
            true => random.millis(1, 5000) / if random.chance(self.brief) { 20 } else { 1 },
            false => random.micros(200, 3000),
        };
        let (there, back) = (way(), way());
        Trip {
            there,
            back,
            slow,
            lost: random.chance(self.lost),
            answer_lost: random.chance(self.answer_lost),
            late: random
                .chance(self.late)
                .then(|| random.millis(1, 4000) / if random.chance(0.5) { 20 } else { 1 }),
            not_reached: random.chance(self.not_reached),
            twice: random
                .chance(self.twice)
                .then(|| random.millis(1, 4000) / if random.chance(0.7) { 100 } else { 1 }),
        }
    }
}
