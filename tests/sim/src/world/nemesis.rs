//! What goes wrong: in the network, in the processes, and by an operator's hand.

use std::time::Duration;

use super::bench::{Bench, Happening};
use super::random::Random;
use super::store::Incarnation;
use crate::core::Input;
use crate::core::request::Kv;

/// How likely what is, as the seed has drawn it. All zero: fair weather.
#[derive(Debug, Default, Clone)]
pub(crate) struct Faults {
    lost: f64,
    answer_lost: f64,
    unavailable: f64,
    slow: f64,
    twice: f64,
    stale: f64,
    silent: f64,
    /// Processes stop in the middle of a renewal.
    stops: f64,
    /// Processes stop, are cut off, crash.
    hard: f64,
    /// An operator deletes, overwrites, revokes.
    operator: f64,
    wipe: f64,
}

/// One exchange with etcd, as the network will have it.
#[derive(Debug)]
pub(crate) struct Trip {
    pub(crate) there: Duration,
    pub(crate) back: Duration,
    pub(crate) lost: bool,
    pub(crate) answer_lost: bool,
    pub(crate) unavailable: bool,
    /// Delivered again, a little later.
    pub(crate) twice: bool,
}

impl Faults {
    pub(crate) fn drawn(random: &mut Random) -> Self {
        let mut share = |of: &[f64]| random.pick(of).copied().unwrap_or_default();
        Self {
            lost: share(&[0.0, 0.01, 0.05, 0.2]),
            answer_lost: share(&[0.0, 0.01, 0.05, 0.2]),
            unavailable: share(&[0.0, 0.0, 0.02, 0.1]),
            slow: share(&[0.0, 0.02, 0.1, 0.3]),
            twice: share(&[0.0, 0.05, 0.2]),
            stale: share(&[0.0, 0.0, 0.05, 0.3]),
            silent: share(&[0.0, 0.1, 0.5]),
            stops: share(&[0.0, 0.02, 0.1]),
            hard: share(&[0.0, 0.0, 0.2, 1.0]),
            operator: share(&[0.0, 0.0, 0.3, 1.0]),
            wipe: share(&[0.0, 0.0, 0.0, 0.05]),
        }
    }

    pub(crate) fn trip(&self, random: &mut Random) -> Trip {
        let mut way = || match random.chance(self.slow) {
            true => random.millis(1, 5000) / if random.chance(0.7) { 20 } else { 1 },
            false => random.micros(200, 3000),
        };
        let (there, back) = (way(), way());
        Trip {
            there,
            back,
            lost: random.chance(self.lost),
            answer_lost: random.chance(self.answer_lost),
            unavailable: random.chance(self.unavailable),
            twice: random.chance(self.twice),
        }
    }

    /// The worst moment to stop is when a renewal is under way: for how long, and how long cut off from then on.
    pub(crate) fn stops(&self, random: &mut Random) -> Option<(Duration, Duration)> {
        random
            .chance(self.stops)
            .then(|| (random.millis(50, 1700), random.millis(1000, 5000)))
    }

    /// How many writes a read is behind.
    pub(crate) fn stale(&self, random: &mut Random) -> Option<usize> {
        random.chance(self.stale).then(|| random.below(4) as usize)
    }

    /// How long a fresh watch says nothing.
    pub(crate) fn silence(&self, random: &mut Random) -> Duration {
        match random.chance(self.silent) {
            true => random.millis(0, 8000),
            false => random.millis(0, 100),
        }
    }

    /// How often an event is told.
    pub(crate) fn copies(&self, random: &mut Random) -> u64 {
        match random.chance(self.silent) {
            true => random.below(3),
            false => 1,
        }
    }
}

impl Bench {
    /// Does something nasty, and comes back later.
    pub(crate) fn strike(&mut self) {
        let (now, faults) = (self.now, self.faults.clone());
        let random = &mut self.random;
        let n = random.below(self.processes.len() as u64) as usize;
        let process = &mut self.processes[n];
        let mut touched: Vec<Incarnation> = Vec::new();
        if random.chance(faults.hard) {
            let until = now + random.millis(50, 7000);
            match random.below(9) {
                0..=2 => process.asleep = process.asleep.max(until),
                3 | 4 => process.unheard = until,
                5 | 6 => process.deaf = until,
                7 => process.dead |= random.chance(0.3),
                _ => {
                    let until = now + random.millis(0, 5000);
                    self.at(
                        now,
                        Happening::Tell {
                            to: n,
                            input: Input::Shutdown { until },
                        },
                    );
                }
            }
            self.trace.note(now, n, || "*  struck".into());
        } else if self.random.chance(faults.operator) {
            touched = self.meddle();
        } else if self.random.chance(faults.wipe) {
            self.trace.note(now, 9, || "*  wiped".into());
            touched = self
                .store
                .keys
                .values()
                .map(|kv| (kv.key.clone(), kv.create_revision))
                .collect();
            self.store.wipe();
            self.tokens.clear();
            for watch in self
                .processes
                .iter_mut()
                .flat_map(|p| p.watches.values_mut())
            {
                watch.silent = now + Duration::from_secs(100_000);
            }
        } else if self.random.chance(0.5) {
            self.store.compact();
        }
        touched.append(&mut self.store.removed);
        self.tainted.extend(touched);
        // Often alone, sometimes one upon the other.
        let pause = if self.random.chance(0.4) {
            (10, 400)
        } else {
            (100, 2500)
        };
        let next = now + self.random.millis(pause.0, pause.1);
        self.at(next, Happening::Nemesis);
    }

    /// An operator's hand; answers the keys it touched.
    fn meddle(&mut self) -> Vec<Incarnation> {
        let ours: Vec<_> = self
            .store
            .keys
            .values()
            .filter(|kv| self.owners.contains_key(&kv.lease))
            .cloned()
            .collect();
        let leases = self.store.leases();
        let name = *self.random.pick(&super::clients::NAMES).unwrap_or(&"");
        let deed = self.random.below(6);
        self.trace
            .note(self.now, 9, || format!("*  operator {deed} {name}"));
        match (deed, self.random.pick(&ours)) {
            (0, Some(kv)) => self.store.delete(&kv.key),
            // One nobody has heard of yet would be nobody's to delete.
            (1, Some(kv))
                if self
                    .counted_on(&(kv.key.clone(), kv.create_revision))
                    .is_some() =>
            {
                let lease = self.store.grant(self.now, Duration::from_secs(3600));
                self.store.put(&kv.key, lease);
                return vec![(kv.key.clone(), kv.create_revision)];
            }
            (2, _) => {
                if let Some(&lease) = self.random.pick(&leases) {
                    self.store.revoke(lease);
                }
            }
            // A contender of another kind, for a while; or keys further down, for good.
            (3, _) => {
                let ttl = self.random.millis(300, 3000);
                let lease = self.store.grant(self.now, ttl);
                self.store.put(format!("{name}/zz").as_bytes(), lease);
            }
            (4, _) => {
                let lease = self.store.grant(self.now, Duration::from_secs(3600));
                self.store.put(format!("{name}/deep/er").as_bytes(), lease);
            }
            _ => {}
        }
        Vec::new()
    }

    /// What an operator put under another lease does not go with its process: he clears it up himself.
    pub(crate) fn clear_up(&mut self) {
        let ended = |kv: &&Kv| {
            let lease = std::str::from_utf8(&kv.key)
                .expect("ascii")
                .rsplit('/')
                .next();
            let lease = lease.and_then(|hex| i64::from_str_radix(hex, 16).ok());
            let process = lease
                .and_then(|lease| self.owners.get(&lease))
                .map(|n| &self.processes[*n]);
            !self.owners.contains_key(&kv.lease) && process.is_some_and(|p| p.dead || p.finished)
        };
        let left: Vec<_> = self
            .store
            .keys
            .values()
            .filter(ended)
            .map(|kv| kv.key.clone())
            .collect();
        for key in left {
            self.store.delete(&key);
        }
        self.store.removed.clear();
    }
}
