//! View: which contenders are to be read, and which keys are watched for a name (rules P14 to P18).
//!
//! A contender that waits is read before one that is held. What is read goes together in one transaction, as much as fits.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::contender::{Contender, Seen, State};
use crate::ids::{ContenderId, Key, NameId, Revision, SessionId, WatchId};
use crate::moment::Moment;
use crate::outbox::Window;
use crate::output::Output;
use crate::request::{Kv, Op};
use crate::transactions::{self, READS};

/// While a watch is younger than this, the name is read too: etcd may serve such a watch 100 ms late (rule P15).
const FRESH: Duration = Duration::from_millis(150);

/// When the first of these reads goes; each later one goes when the watch is about twice as old.
const EARLY: Duration = Duration::from_millis(5);

/// How long a waiter relies on its watch before its first read, which learns who owns the name.
pub const RELIES: Duration = Duration::from_secs(1);

/// The shortest pause between two reads of a waiter whose watch is not fresh.
pub const OFTEN: Duration = Duration::from_millis(50);

/// How often a contender that waits is read although its watch is silent (rule P17).
pub const WAITER: Duration = Duration::from_secs(5);

/// How long a watch stays open after its name was last wanted (rule P15).
pub const WARM: Duration = Duration::from_secs(5);

/// What is asked about one contender.
#[derive(Debug)]
pub struct Read {
    pub contender: ContenderId,
    /// It waits: only keys up to its create revision are asked for. `None`: it is held.
    pub up_to: Option<Revision>,
    family: Key,
    /// The key whose value and lease are asked for too.
    whole: Option<Vec<u8>>,
}

impl Read {
    /// How a contender is to be read, if it waits or calls hold it.
    pub fn of(id: ContenderId, contender: &Contender, family: &Key) -> Option<Self> {
        let up_to = match contender.state {
            State::Waiting => contender.created(),
            State::Held(_) => None,
            _ => return None,
        };
        let whole = contender.key_to_read().map(Vec::from);
        Some(Self { contender: id, up_to, family: family.clone(), whole })
    }

    /// What it asks: one operation for the family, and one for the key that is read with its value.
    pub fn ops(&self) -> impl Iterator<Item = Op> + '_ {
        let keys = transactions::read_under(self.family.clone(), self.up_to, false);
        // A range, because a get has no bound on create revisions, and a foreign key need not be text.
        let text = self.whole.as_ref().and_then(|key| key.utf8_chunks().next());
        let whole =
            text.map(|text| transactions::read_under(text.valid().into(), self.up_to, true));
        std::iter::once(keys).chain(whole)
    }

    /// Takes its part out of a response.
    pub fn seen(&self, answers: &mut impl Iterator<Item = Vec<Kv>>) -> Seen {
        let keys = answers.next().unwrap_or_default();
        let found = self.whole.as_ref().map(|key| (key, answers.next().unwrap_or_default()));
        let whole = found.and_then(|(key, found)| found.into_iter().find(|kv| kv.key == *key));
        Seen { keys, whole }
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
pub struct View {
    /// Contenders to be read, each once: those that wait, then those that are held. One that becomes urgent stands in both.
    urgent: VecDeque<ContenderId>,
    later: VecDeque<ContenderId>,
    /// Whether each is urgent.
    wanted: BTreeMap<ContenderId, bool>,
    window: Window,
    watches: BTreeMap<(NameId, Whose), Watch>,
    names: BTreeMap<WatchId, (NameId, Whose)>,
    last: u64,
}

impl View {
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
        while next.len() < READS
            && let Some(contender) = self.urgent.pop_front().or_else(|| self.later.pop_front())
        {
            let wanted = self.wanted.remove(&contender); // `None`: it became urgent, and was read
            next.extend(wanted.and_then(|_| read(contender)));
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
    pub fn is_watched(&self, name: NameId) -> bool {
        self.watches_of(name).next().is_some()
    }

    /// Whether all keys of a name are watched for the contender in line.
    pub fn is_watched_whole(&self, name: NameId) -> bool {
        self.waits(name).is_some_and(Watch::is_whole)
    }

    /// Whether what calls hold of a name under a session is watched.
    pub fn is_guarded(&self, name: NameId, session: SessionId) -> bool {
        self.watches.contains_key(&(name, Whose::Holds(session)))
    }

    fn waits(&self, name: NameId) -> Option<&Watch> {
        self.watches.get(&(name, Whose::Waits))
    }

    /// For whom a name is watched.
    fn watches_of(&self, name: NameId) -> impl Iterator<Item = Whose> {
        let all = self.watches.range((name, Whose::Waits)..);
        all.map_while(move |((watched, whose), _)| (*watched == name).then_some(*whose))
    }

    /// Watches `prefix` for a name from this revision on, in place of the earlier watch for the same contenders. Returns the
    /// outputs for that; none if `prefix` is watched already.
    pub fn open(
        &mut self,
        now: Moment,
        name: NameId,
        whose: Whose,
        prefix: Key,
        from: Revision,
    ) -> Vec<Output> {
        let watched = (name, whose);
        let same = |watch: &Watch| watch.prefix == prefix;
        if self.watches.get(&watched).is_some_and(same) {
            return Vec::new();
        }
        let before = self.close(name, |other| other == whose);
        self.last += 1;
        let id = WatchId::from(self.last);
        let watch = Watch { id, prefix: prefix.clone(), opened: now };
        self.names.insert(id, watched);
        self.watches.insert(watched, watch);
        let open = Output::Watch { id, prefix, from, puts: whose != Whose::Waits };
        before.into_iter().chain([open]).collect()
    }

    /// Returns after how long a waiter of this name is read again because its watch is fresh; `None` once it is not.
    pub fn early(&self, now: Moment, name: NameId) -> Option<Duration> {
        let watch = self.waits(name)?;
        let age = now - watch.opened;
        let early = if watch.is_whole() { EARLY + age } else { FRESH };
        (age < FRESH).then_some(early)
    }

    /// The name that a watch is for, and for whom.
    pub fn name_of(&self, watch: WatchId) -> Option<(NameId, Whose)> {
        self.names.get(&watch).copied()
    }

    /// Closes the watches of a name that `of` picks. Returns the outputs for that.
    pub fn close(&mut self, name: NameId, of: impl Fn(Whose) -> bool) -> Vec<Output> {
        let whose: Vec<Whose> = self.watches_of(name).filter(|whose| of(*whose)).collect();
        let close = |whose| {
            let watch = self.watches.remove(&(name, whose))?;
            self.names.remove(&watch.id);
            Some(Output::Unwatch(watch.id))
        };
        whose.into_iter().filter_map(close).collect()
    }

    /// Closes all watches. Returns each with its name.
    pub fn close_all(&mut self) -> Vec<(WatchId, NameId)> {
        self.watches.clear();
        let closed = std::mem::take(&mut self.names).into_iter();
        closed.map(|(id, (name, _))| (id, name)).collect()
    }

    /// Whether nothing is read or watched.
    pub fn is_idle(&self) -> bool {
        self.watches.is_empty() && self.wanted.is_empty()
    }
}
