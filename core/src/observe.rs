//! Observe: which contenders are read when, and which keys are watched for a name (rules P14 to P18).
//!
//! A contender that waits is read before one that is held. What is read goes together in one transaction, as much as fits.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::batch::WINDOW;
use crate::ids::{ContenderId, Key, Name, WatchId};
use crate::moment::Moment;
use crate::transactions::READS;

/// When a name with a fresh watch is read too: etcd may serve such a watch 100 ms late (rule P15).
const EARLY: [Duration; 4] = [
    Duration::from_millis(5),
    Duration::from_millis(15),
    Duration::from_millis(30),
    Duration::from_millis(60),
];

/// A watch that is older than this is not fresh any more.
const FRESH: Duration = Duration::from_millis(150);

/// How long a waiter relies on its watch before its first read, which learns who owns the name.
pub const RELIES: Duration = Duration::from_secs(1);

/// How often a contender that waits is read although its watch is silent (rule P17).
pub const WAITER: Duration = Duration::from_secs(5);

/// The same for one that is held.
pub const HOLDER: Duration = Duration::from_secs(60);

/// How long a lock is held before its keys are watched: short sections pay nothing (rule P18).
pub const GUARD_AFTER: Duration = Duration::from_secs(1);

/// How long a watch stays open after its name was last wanted (rule P15).
pub const WARM: Duration = Duration::from_secs(5);

/// A watch of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watch {
    pub id: WatchId,
    /// All keys that begin with this.
    pub prefix: Key,
    /// Not only deletions.
    pub puts: bool,
    opened: Moment,
}

/// How a contender is read.
#[derive(Debug, Default)]
struct Reading {
    queued: bool,
    under_way: bool,
    /// Another read was asked for while one was under way.
    again: bool,
    /// Reads since its put, or since another watch was opened.
    count: usize,
    /// Which read is under way: an answer to an earlier one is not taken for it.
    urgent: bool,
}

/// What is read and watched.
#[derive(Debug, Default)]
pub struct Observe {
    urgent: VecDeque<ContenderId>,
    later: VecDeque<ContenderId>,
    under_way: usize,
    readings: BTreeMap<ContenderId, Reading>,
    watches: BTreeMap<Name, Watch>,
    names: BTreeMap<WatchId, Name>,
}

impl Observe {
    /// A contender is to be read as soon as may be; one that waits before those that are held.
    pub fn read(&mut self, contender: ContenderId, urgent: bool) {
        let reading = self.readings.entry(contender).or_default();
        if reading.under_way {
            reading.again = true;
            reading.urgent |= urgent;
        } else if !reading.queued {
            reading.queued = true;
            let line = if urgent {
                &mut self.urgent
            } else {
                &mut self.later
            };
            line.push_back(contender);
        }
    }

    /// The contenders of the next read, if one may be sent; `keys`: how many keys each has to be read by; 0: none.
    pub fn next_read(&mut self, keys: impl Fn(ContenderId) -> usize) -> Option<Vec<ContenderId>> {
        if self.under_way >= WINDOW {
            return None;
        }
        let mut next = Vec::new();
        let mut room = READS;
        while let Some(contender) = self.urgent.pop_front().or_else(|| self.later.pop_front()) {
            let count = keys(contender);
            if count > room {
                self.urgent.push_front(contender);
                break;
            }
            let Some(reading) = self.readings.get_mut(&contender) else {
                continue;
            };
            reading.queued = false;
            if count > 0 {
                reading.under_way = true;
                room -= count;
                next.push(contender);
            }
        }
        (!next.is_empty()).then(|| {
            self.under_way += 1;
            next
        })
    }

    /// A read was answered, or not. `seen`: the contenders that it has shown.
    pub fn read_done(&mut self, contenders: &[ContenderId]) {
        self.under_way -= 1;
        for contender in contenders {
            let Some(reading) = self.readings.get_mut(contender) else {
                continue;
            };
            reading.under_way = false;
            reading.count += 1;
            if std::mem::take(&mut reading.again) {
                let urgent = std::mem::take(&mut reading.urgent);
                self.read(*contender, urgent);
            }
        }
    }

    /// A contender is not read any more.
    pub fn forget(&mut self, contender: ContenderId) {
        self.readings.remove(&contender);
    }

    /// The watch of a name.
    pub fn watch(&self, name: &Name) -> Option<&Watch> {
        self.watches.get(name)
    }

    /// Whether the watch of a name reports what this one would.
    pub fn is_watched(&self, name: &Name, prefix: &str, puts: bool) -> bool {
        let watch = self.watches.get(name);
        watch.is_some_and(|watch| &*watch.prefix == prefix && watch.puts == puts)
    }

    /// Watches this for a name, in place of what was watched; answers the watch to be closed.
    pub fn open(
        &mut self,
        now: Moment,
        id: WatchId,
        name: &Name,
        prefix: Key,
        puts: bool,
    ) -> Option<WatchId> {
        let watch = Watch {
            id,
            prefix,
            puts,
            opened: now,
        };
        self.names.insert(id, name.clone());
        let before = self.watches.insert(name.clone(), watch)?;
        self.names.remove(&before.id);
        Some(before.id)
    }

    /// The reads beside a watch that was just opened begin anew.
    pub fn restart(&mut self, contender: ContenderId) {
        self.readings.entry(contender).or_default().count = 0;
    }

    /// When a contender that waits is to be read next after an answer: soon if the watch of its name is fresh. `whole`: that watch
    /// is of the whole family.
    pub fn next_after(
        &self,
        now: Moment,
        name: &Name,
        contender: ContenderId,
        whole: bool,
    ) -> Option<Duration> {
        let watch = self
            .watches
            .get(name)
            .filter(|watch| now - watch.opened < FRESH)?;
        debug_assert!(!watch.prefix.is_empty());
        let count = self
            .readings
            .get(&contender)
            .map_or(0, |reading| reading.count);
        match whole {
            true => EARLY.get(count).copied(),
            false => (count == 0).then_some(FRESH),
        }
    }

    /// The name that a watch is for.
    pub fn name_of(&self, watch: WatchId) -> Option<&Name> {
        self.names.get(&watch)
    }

    /// A name is not watched any more; answers the watch to be closed.
    pub fn close(&mut self, name: &Name) -> Option<WatchId> {
        let watch = self.watches.remove(name)?;
        self.names.remove(&watch.id);
        Some(watch.id)
    }

    /// No name is watched any more; answers the watches to be closed, each with its name.
    pub fn close_all(&mut self) -> Vec<(WatchId, Name)> {
        self.watches.clear();
        std::mem::take(&mut self.names).into_iter().collect()
    }

    /// Whether nothing is read or watched.
    pub fn is_idle(&self) -> bool {
        self.watches.is_empty() && self.readings.is_empty()
    }
}
