//! Observe: which contenders are read when, and which keys are watched for a name (rules P14 to P18).
//!
//! A contender that waits is read before one that is held. What is read goes together in one transaction, as much as fits.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::batch::Window;
use crate::ids::{ContenderId, Key, Name, Revision, SessionId, WatchId};
use crate::moment::Moment;
use crate::output::Output;
use crate::request::{Kv, Op};
use crate::transactions::{self, READS};

/// While a watch is younger than this, the name is read too: etcd may serve such a watch 100 ms late (rule P15).
const FRESH: Duration = Duration::from_millis(150);

/// When the first of these reads goes; each later one goes when the watch is about twice as old.
const EARLY: Duration = Duration::from_millis(5);

/// How long a waiter relies on its watch before its first read, which learns who owns the name.
pub const RELIES: Duration = Duration::from_secs(1);

/// How often a contender that waits is read although its watch is silent (rule P17).
pub const WAITER: Duration = Duration::from_secs(5);

/// The same for one that stays locked after its call.
pub const RETAINED: Duration = Duration::from_secs(60);

/// Reads of what is retained go together, once in so long: each by itself would be a request more.
pub const TOGETHER: Duration = Duration::from_millis(100);

/// How long a lock is held before its keys are watched: short sections pay nothing (rule P18).
pub const GUARD_AFTER: Duration = Duration::from_secs(1);

/// How long a watch stays open after its name was last wanted (rule P15).
pub const WARM: Duration = Duration::from_secs(5);

/// What is asked about one contender.
#[derive(Debug)]
pub struct Read {
    pub contender: ContenderId,
    /// It waits: only keys up to its create revision are asked for. `None`: it is held.
    pub up_to: Option<Revision>,
    /// What is asked of each of its names: the keys that begin with this, and the one of them whose value and lease are asked for too.
    pub names: Vec<(Key, Option<Vec<u8>>)>,
}

/// What a read shows of one name.
#[derive(Debug)]
pub struct Seen {
    /// The keys that were asked for, the oldest first.
    pub keys: Vec<Kv>,
    /// The key whose value and lease were asked for, if it is there.
    pub whole: Option<Kv>,
}

impl Read {
    /// What it asks: one operation for each family, and one for each key that is read with its value.
    pub fn ops(&self) -> impl Iterator<Item = Op> + '_ {
        self.names.iter().flat_map(|(family, whole)| {
            let keys = transactions::read_under(family.clone(), self.up_to, false);
            // A range, because a get has no bound on create revisions, and a foreign key need not be text.
            let text = whole.as_ref().and_then(|key| key.utf8_chunks().next());
            let whole = text.map(|text| text.valid().into());
            let whole = whole.map(|key| transactions::read_under(key, self.up_to, true));
            std::iter::once(keys).chain(whole)
        })
    }

    /// Takes its part out of an answer.
    pub fn seen(&self, answers: &mut impl Iterator<Item = Vec<Kv>>) -> Vec<Seen> {
        let mut next = || answers.next().unwrap_or_default();
        let seen = self.names.iter().map(|(_, whole)| Seen {
            keys: next(),
            whole: whole.as_ref().and_then(|key| next().into_iter().find(|kv| kv.key == *key)),
        });
        seen.collect()
    }
}

/// For whom a name is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whose {
    /// The contender in line: deletions of what is ahead of it.
    Waits,
    /// What calls hold under this session: deletions and puts of its keys (rule P18).
    Holds(SessionId),
}

/// A watch of a name.
#[derive(Debug)]
struct Watch {
    id: WatchId,
    /// All keys that begin with this.
    prefix: Key,
    opened: Moment,
}

impl Watch {
    /// Whether it is on all keys of the name's family.
    fn is_whole(&self) -> bool {
        self.prefix.ends_with('/')
    }
}

/// What is read and watched.
#[derive(Debug, Default)]
pub struct Observe {
    /// Contenders to be read, each once: those that wait, then those that are held. One that becomes urgent stands in both.
    urgent: VecDeque<ContenderId>,
    later: VecDeque<ContenderId>,
    /// Whether each is urgent.
    wanted: BTreeMap<ContenderId, bool>,
    window: Window,
    watches: BTreeMap<(Name, Whose), Watch>,
    names: BTreeMap<WatchId, (Name, Whose)>,
    last: u64,
}

impl Observe {
    /// A contender is to be read as soon as may be; one that waits before those that are held.
    pub fn read(&mut self, contender: ContenderId, urgent: bool) {
        match self.wanted.get(&contender) {
            Some(already) if *already >= urgent => return,
            _ if urgent => self.urgent.push_back(contender),
            _ => self.later.push_back(contender),
        }
        self.wanted.insert(contender, urgent);
    }

    /// What goes into the next read, if one may be sent; `read`: how a contender is to be read, if it still is.
    pub fn next_reads(&mut self, read: impl Fn(ContenderId) -> Option<Read>) -> Option<Vec<Read>> {
        let mut next: Vec<Read> = Vec::new();
        if !self.window.admits(self.wanted.len(), READS) {
            return None;
        }
        let mut names = 0;
        while names < READS
            && let Some(contender) = self.urgent.pop_front().or_else(|| self.later.pop_front())
        {
            let wanted = self.wanted.remove(&contender); // `None`: it became urgent, and was read
            if let Some(read) = wanted.and_then(|_| read(contender)) {
                names += read.names.len();
                next.push(read);
            }
        }
        (!next.is_empty()).then(|| {
            self.window.sent(next.len());
            next
        })
    }

    /// A read of so many contenders was answered, or not.
    pub fn read_done(&mut self, contenders: usize) {
        self.window.done(contenders);
    }

    /// What is under way may never be answered, and holds no read back any more.
    pub fn reopen_window(&mut self) {
        self.window.reopen();
    }

    /// Whether a name is watched.
    pub fn is_watched(&self, name: &Name) -> bool {
        self.watches_of(name).next().is_some()
    }

    /// Whether all keys of a name are watched for the contender in line.
    pub fn is_watched_whole(&self, name: &Name) -> bool {
        self.waits(name).is_some_and(Watch::is_whole)
    }

    /// Whether what calls hold of these names under a session is watched.
    pub fn are_guarded(&self, names: &[Name], session: SessionId) -> bool {
        let is_guarded = |name: &Name| {
            let guard = (name.clone(), Whose::Holds(session));
            self.watches.contains_key(&guard)
        };
        names.iter().all(is_guarded)
    }

    fn waits(&self, name: &Name) -> Option<&Watch> {
        self.watches.get(&(name.clone(), Whose::Waits))
    }

    /// For whom a name is watched.
    fn watches_of(&self, name: &Name) -> impl Iterator<Item = Whose> {
        let all = self.watches.range((name.clone(), Whose::Waits)..);
        all.map_while(move |((watched, whose), _)| (watched == name).then_some(*whose))
    }

    /// Watches `prefix` for a name from this revision on, in place of the earlier watch for the same contenders. Returns the
    /// outputs for that; none if `prefix` is watched already.
    pub fn open(
        &mut self,
        now: Moment,
        name: &Name,
        whose: Whose,
        prefix: Key,
        from: Revision,
    ) -> Vec<Output> {
        let watched = (name.clone(), whose);
        let same = |watch: &Watch| watch.prefix == prefix;
        if self.watches.get(&watched).is_some_and(same) {
            return Vec::new();
        }
        let before = self.close(name, |other| other == whose);
        self.last += 1;
        let id = WatchId::from(self.last);
        let watch = Watch { id, prefix: prefix.clone(), opened: now };
        self.names.insert(id, watched.clone());
        self.watches.insert(watched, watch);
        let open = Output::Watch { id, prefix, from, puts: whose != Whose::Waits };
        before.into_iter().chain([open]).collect()
    }

    /// Returns after how long a waiter of this name is read again because its watch is fresh; `None` once it is not.
    pub fn early(&self, now: Moment, name: &Name) -> Option<Duration> {
        let watch = self.waits(name)?;
        let age = now - watch.opened;
        let early = if watch.is_whole() { EARLY + age } else { FRESH };
        (age < FRESH).then_some(early)
    }

    /// The name that a watch is for, and for whom.
    pub fn name_of(&self, watch: WatchId) -> Option<&(Name, Whose)> {
        self.names.get(&watch)
    }

    /// Closes the watches of a name that `of` picks. Returns the outputs for that.
    pub fn close(&mut self, name: &Name, of: impl Fn(Whose) -> bool) -> Vec<Output> {
        let whose: Vec<Whose> = self.watches_of(name).filter(|whose| of(*whose)).collect();
        let close = |whose| {
            let watch = self.watches.remove(&(name.clone(), whose))?;
            self.names.remove(&watch.id);
            Some(Output::Unwatch(watch.id))
        };
        whose.into_iter().filter_map(close).collect()
    }

    /// Closes all watches. Returns each with its name.
    pub fn close_all(&mut self) -> Vec<(WatchId, Name)> {
        self.watches.clear();
        let closed = std::mem::take(&mut self.names).into_iter();
        closed.map(|(id, (name, _))| (id, name)).collect()
    }

    /// Whether nothing is read or watched.
    pub fn is_idle(&self) -> bool {
        self.watches.is_empty() && self.wanted.is_empty()
    }
}
