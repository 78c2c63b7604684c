//! Nemesis: faults of processes and of etcd, and actions of an operator.

use std::time::Duration;

use super::bench::{Bench, Happening, Process};
use super::clients::NAMES;
use super::etcd::{Incarnation, Snapshot, Space};
use super::tally::Happened;
use super::view;
use etcd_locked_core::{Input, Kv, LeaseId, Moment};

/// How late a process may notice that etcd was wiped, and so lose what it has got since.
const NOTICED: Duration = Duration::from_secs(15);

impl Bench {
    /// Causes a fault, and schedules the next one.
    pub(crate) fn strike(&mut self) {
        let (now, faults) = (self.now, self.faults.clone());
        if self.random.chance(faults.hard) {
            self.strike_process();
        } else if self.random.chance(faults.leader) {
            self.depose();
        } else if self.random.chance(faults.operator) {
            let touched = self.meddle();
            self.taint(touched);
        } else if self.random.chance(faults.wipe) {
            self.wipe();
        } else if self.random.chance(faults.compact) {
            self.struck(Happened::Compacted, "");
            self.store.compact();
        } else if faults.full > 0.0 && self.random.chance(faults.full) {
            self.fill();
        } else if faults.denied > 0.0 && self.random.chance(faults.denied) {
            self.deny();
        } else if faults.restore > 0.0 && self.random.chance(faults.restore) {
            let snapshot = Box::new(self.store.snapshot());
            let at = now + self.random.millis(1, 8000);
            self.at(at, Happening::Restore(snapshot));
        }
        // Often alone, sometimes several at once.
        let (from, to) = if self.random.chance(0.4) { (10, 400) } else { (100, 2500) };
        let next = now + self.random.millis(from, to);
        self.at(next, Happening::Nemesis);
    }

    fn struck(&mut self, what: Happened, whom: &str) {
        self.tally.count(what);
        self.trace.note(self.now, None, || format!("{what:?} {whom}"));
    }

    fn strike_process(&mut self) {
        let now = self.now;
        let machine = self.random.below(self.machines.len() as u64) as usize;
        let n = self.machines[machine];
        let until = now + self.random.millis(50, 7000);
        let process = &mut self.processes[n];
        let fault = match self.random.below(9) {
            0..=2 => {
                process.asleep = process.asleep.max(until);
                Happened::Paused
            }
            3 | 4 => {
                process.cut_off = until;
                Happened::CutOff
            }
            5 | 6 => {
                process.deaf = until;
                Happened::Deaf
            }
            7 if process.dead || !self.random.chance(0.5) => return,
            7 => {
                process.dead = true;
                self.bury(n);
                Happened::Crashed
            }
            _ if !process.is_there() || !self.random.chance(0.5) => return,
            _ => {
                let until = now + self.random.millis(0, 5000);
                let input = Input::Shutdown { until };
                self.at(now, Happening::Submit { to: n, input });
                let ends = self.faults.ends;
                if ends > 0.0 && self.random.chance(ends) {
                    let at = now + self.random.micros(0, (until - now).as_micros() as u64 + 1);
                    self.at(at, Happening::EndSessions(n));
                }
                Happened::ShutDown
            }
        };
        self.tally.count(fault);
        self.trace.note(now, Some(n), || format!("*  {fault:?}"));
        if matches!(fault, Happened::Crashed | Happened::ShutDown) {
            let at = now + self.random.millis(10, 4000);
            self.at(at, Happening::Start(machine));
        }
    }

    /// Removes the leader for a while. The next one extends all leases to their full TTL (rule P31).
    fn depose(&mut self) {
        if self.leaderless > self.now {
            return;
        }
        self.struck(Happened::LeaderChange, "");
        self.leaderless = self.now + self.random.millis(50, 3000);
        self.at(self.leaderless, Happening::Promote);
    }

    fn wipe(&mut self) {
        self.struck(Happened::Wiped, "");
        self.was_reset = self.was_reset.max(self.now + NOTICED);
        let all = self.store.kvs().map(incarnation).collect();
        self.store.wipe();
        self.forget();
        self.taint(all);
    }

    /// Fills etcd for a while. It still applies the first writes.
    fn fill(&mut self) {
        self.struck(Happened::Full, "");
        self.store.space = Space::Crossing(self.random.below(4) as u32);
        let at = self.now + self.random.millis(50, 4000);
        self.at(at, Happening::Room);
    }

    /// Denies etcd's user some keys for a while.
    fn deny(&mut self) {
        let words = [NAMES[0], NAMES[1], "locks%s"];
        let word = self.random.one(&words);
        self.struck(Happened::Denied, word);
        self.store.denied = Some(word);
        self.denied.insert(word);
        let at = self.now + self.random.millis(50, 4000);
        self.at(at, Happening::Allow);
    }

    /// Restores etcd from a snapshot. The operator then deletes the keys that this has brought back.
    pub(crate) fn restore(&mut self, snapshot: Snapshot) {
        self.struck(Happened::Restored, "");
        self.break_connections();
        let before: Vec<Incarnation> = self.store.kvs().map(incarnation).collect();
        self.come_back(snapshot);
        let back: Vec<Incarnation> = self.store.kvs().map(incarnation).collect();
        let session = |key: &[u8]| key.starts_with(b"locks%s/");
        for (key, _) in back.iter().filter(|of| !before.contains(of) && !session(&of.0)) {
            self.store.delete(key);
        }
        self.taint(before);
        self.taint(back);
    }

    /// Restores etcd from a snapshot, and does nothing else.
    pub(crate) fn come_back(&mut self, snapshot: Snapshot) {
        self.was_reset = Moment::after_boot(Duration::MAX);
        self.store.restore(self.now, snapshot);
        self.forget();
    }

    /// Forgets what was known of revisions.
    fn forget(&mut self) {
        self.tokens.clear();
        self.times.clear();
    }

    /// Revokes all leases of a process, as an operator would.
    pub(crate) fn end_sessions(&mut self, n: usize) {
        if !self.processes[n].is_there() {
            return;
        }
        let leases = self.store.leases().into_iter();
        let its: Vec<LeaseId> = leases.filter(|lease| self.owners.get(lease) == Some(&n)).collect();
        for lease in its {
            self.struck(Happened::SessionEnded, &format!("{lease:x}"));
            self.store.revoke(lease);
        }
        self.taint(Vec::new());
    }

    /// Changes keys as an operator would. Returns the keys that it overwrote.
    fn meddle(&mut self) -> Vec<Incarnation> {
        let now = self.now;
        let ours = |kv: &&Kv| self.process_of(kv).is_some();
        let ours: Vec<Kv> = self.store.kvs().filter(ours).cloned().collect();
        let leases = self.store.leases();
        let name = self.random.one(&NAMES);
        let one = self.random.pick(&ours);
        let shown = one.map_or(String::new(), |kv| String::from_utf8_lossy(&kv.key).into());
        let fault = match (self.random.below(6), one) {
            (0, Some(kv)) => {
                self.store.delete(&kv.key);
                Happened::KeyDeleted
            }
            // A process would not delete a key that it does not know yet.
            (1, Some(kv)) if self.counted_on(&incarnation(kv)).is_some() => {
                let lease = self.store.grant(now, Duration::from_secs(3600));
                self.store.put(&kv.key, lease);
                self.struck(Happened::KeyOverwritten, &shown);
                return vec![incarnation(kv)];
            }
            (2, _) => match self.random.pick(&leases) {
                Some(&lease) => {
                    self.store.revoke(lease);
                    Happened::LeaseRevoked
                }
                None => return Vec::new(),
            },
            // A contender of another kind, for a while; or permanent keys further down.
            (3, _) => {
                let ttl = 2 + self.random.below(3);
                let lease = self.store.grant(now, Duration::from_secs(ttl));
                self.store.put(format!("{name}/zz").as_bytes(), lease);
                Happened::Stranger
            }
            (4, _) => {
                let lease = self.store.grant(now, Duration::from_secs(3600));
                self.store.put(format!("{name}/deep/er").as_bytes(), lease);
                Happened::DeeperKey
            }
            _ => return Vec::new(),
        };
        self.struck(fault, &format!("{shown} {name}"));
        Vec::new()
    }

    /// Marks these keys, and those just deleted, as changed behind their holders' backs.
    fn taint(&mut self, touched: Vec<Incarnation>) {
        self.tainted.extend(touched);
        self.tainted.extend(std::mem::take(&mut self.store.removed));
    }

    /// Deletes what an operator put under another lease, which does not end with its process.
    pub(crate) fn clear_up(&mut self) {
        let ended = |kv: &&Kv| {
            let owner = std::str::from_utf8(&kv.key).ok().and_then(|key| self.owner(key));
            let process = owner.map(|n| &self.processes[n]);
            // If its delete was refused, a process gives up the key together with its session.
            let knows = |p: &Process| {
                let mut contenders = view::contenders(&p.core).into_iter();
                contenders.any(|of| of.key.is_some_and(|key| key.as_bytes() == kv.key))
            };
            self.process_of(kv).is_none() && process.is_some_and(|p| !p.is_there() || !knows(p))
        };
        let left: Vec<_> = self.store.kvs().filter(ended).map(|kv| kv.key.clone()).collect();
        for key in left {
            self.store.delete(&key);
        }
        self.store.removed.clear();
    }
}

/// Returns the lease in a key's name.
pub(crate) fn lease_of(key: &str) -> Option<LeaseId> {
    let (_, child) = key.rsplit_once('/')?;
    let hex = child.split('.').next()?;
    i64::from_str_radix(hex, 16).ok()
}

fn incarnation(kv: &Kv) -> Incarnation {
    (kv.key.clone(), kv.create_revision)
}
