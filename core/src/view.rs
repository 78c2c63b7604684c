//! View: the contenders to read, and the watches that are open (rules P14 to P18).
//!
//! Reads share a transaction as far as they fit.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::contender::{Contender, State};
use crate::ids::{ContenderId, Key, NameId, Revision, SessionId, WatchId};
use crate::moment::Moment;
use crate::outbox::Line;
use crate::output::Output;
use crate::request::{Kv, Op};

/// While a watch is younger than this, the name is read too, because etcd may serve such a watch 100 ms late (rule P15).
const FRESH: Duration = Duration::from_millis(150);

/// The age of the watch at the first of these reads. It about doubles with each later one.
const EARLY: Duration = Duration::from_millis(5);

/// How long a waiter relies on its watch before its first read, which shows who owns the name.
pub const FIRST_READ: Duration = Duration::from_secs(1);

/// The shortest pause between two reads for a waiter whose watch is no longer fresh.
pub const SHORTEST_PAUSE: Duration = Duration::from_millis(50);

/// How often a waiting contender is read while its watch is silent (rule P17).
pub const READ_AGAIN: Duration = Duration::from_secs(5);

/// How long a watch stays open after its name was last wanted (rule P15).
pub const WARM: Duration = Duration::from_secs(5);

/// A read for one contender.
#[derive(Debug)]
pub struct Read {
    pub contender: ContenderId,
    /// For a waiter: the last create revision to read, which is its own. `None`: it is held, and all keys are read.
    pub up_to: Option<Revision>,
    family: Key,
    /// The key that is read with its value and lease.
    whole: Option<Vec<u8>>,
}

impl Read {
    /// Returns the read for a contender that waits or is held.
    pub fn of(id: ContenderId, contender: &Contender) -> Option<Self> {
        let up_to = match contender.state {
            State::Waiting => contender.created,
            State::Held(_) => None,
            _ => return None,
        };
        let whole = contender.key_to_read().map(Vec::from);
        Some(Self { contender: id, up_to, family: contender.family.clone(), whole })
    }

    /// Returns its operations: one for the family, and one for the key that is read with its value.
    pub fn ops(&self) -> impl Iterator<Item = Op> + '_ {
        let under = |prefix, values| Op::Range { prefix, limit: None, values, up_to: self.up_to };
        let keys = under(self.family.clone(), false);
        // Not a get, because that cannot limit create revisions. A key of another client might not be valid UTF-8.
        let text = self.whole.as_ref().and_then(|key| key.utf8_chunks().next());
        let whole = text.map(|text| under(text.valid().into(), true));
        std::iter::once(keys).chain(whole)
    }

    /// Takes its part of a response: the keys, the oldest first, one of them with its value and lease.
    pub fn seen(&self, answers: &mut impl Iterator<Item = Vec<Kv>>) -> Vec<Kv> {
        let mut keys = answers.next().unwrap_or_default();
        let Some(key) = &self.whole else { return keys };
        let whole = answers.next().into_iter().flatten().find(|kv| kv.key == *key);
        if let Some((kv, whole)) = keys.iter_mut().find(|kv| kv.key == *key).zip(whole) {
            *kv = whole;
        }
        keys
    }
}

/// What a watch of a name is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whose {
    /// The contender in line: deletions of the keys ahead of it.
    Waits,
    /// The keys held under this session: their deletions and puts (rule P18).
    Holds(SessionId),
}

/// A watch on all keys that begin with `prefix`.
#[derive(Debug)]
pub struct Watch {
    id: WatchId,
    prefix: Key,
    opened: Moment,
}

impl Watch {
    /// Returns true if it covers the whole family of the name.
    pub fn is_whole(&self) -> bool {
        self.prefix.ends_with('/')
    }

    /// Returns the pause before a waiter is read again because the watch is fresh; `None` if it is not.
    pub fn early(&self, now: Moment) -> Option<Duration> {
        let age = now - self.opened;
        let early = if self.is_whole() { EARLY + age } else { FRESH };
        (age < FRESH).then_some(early)
    }
}

#[derive(Debug, Default)]
pub struct View {
    pub reads: Line<ContenderId>,
    watches: BTreeMap<(NameId, Whose), Watch>,
    /// The name and the purpose of each watch.
    pub names: BTreeMap<WatchId, (NameId, Whose)>,
    last: u64,
}

impl View {
    pub fn get(&self, name: NameId, whose: Whose) -> Option<&Watch> {
        self.watches.get(&(name, whose))
    }

    pub fn is_watched(&self, name: NameId) -> bool {
        self.watches_of(name).next().is_some()
    }

    fn watches_of(&self, name: NameId) -> impl Iterator<Item = Whose> {
        let all = self.watches.range((name, Whose::Waits)..);
        all.map_while(move |((watched, whose), _)| (*watched == name).then_some(*whose))
    }

    /// Opens a watch on a prefix, in place of the earlier one with this purpose. Returns the outputs for that.
    pub fn open(&mut self, now: Moment, of: (NameId, Whose), on: (Key, Revision)) -> Vec<Output> {
        let ((name, whose), (prefix, from)) = (of, on);
        if self.get(name, whose).is_some_and(|watch| watch.prefix == prefix) {
            return Vec::new();
        }
        let mut outputs = self.close(name, |other| other == whose);
        self.last += 1;
        let id = WatchId(self.last);
        self.names.insert(id, (name, whose));
        self.watches.insert((name, whose), Watch { id, prefix: prefix.clone(), opened: now });
        outputs.push(Output::Watch { id, prefix, from, puts: whose != Whose::Waits });
        outputs
    }

    /// Closes the watches of a name that `of` selects. Returns the outputs for that.
    pub fn close(&mut self, name: NameId, of: impl Fn(Whose) -> bool) -> Vec<Output> {
        let closed: Vec<Whose> = self.watches_of(name).filter(|whose| of(*whose)).collect();
        let close = |whose| {
            let watch = self.watches.remove(&(name, whose))?;
            self.names.remove(&watch.id);
            Some(Output::Unwatch(watch.id))
        };
        closed.into_iter().filter_map(close).collect()
    }

    pub fn is_idle(&self) -> bool {
        self.watches.is_empty() && self.reads.pending.is_empty()
    }
}
