//! Deadlock: finds a cycle of calls of several processes that wait for each other (rule P38).
//!
//! The key by which a nested call waits lists the keys that its task holds. A search goes backwards: from the keys that a task holds
//! to the younger contenders that wait for them, to what the tasks of those hold, and so on. It has found a cycle once it comes to a
//! key that the call itself waits for. What it has read may be out of date: the abort proves the cycle, or does nothing.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{CallId, Incarnation, Key, Revision, contends, family_of, group_of, holds_of};
use crate::outbox::Line;
use crate::output::Blocker;
use crate::request::{Compare, Failure, Kv, Op, Refusal, Txn, TxnAnswer};
use crate::seat::{Mode, Seat};
use crate::steps::step;
use crate::transactions;

/// How long a nested call waits before it has a key of its own; and how long between its searches.
pub const STEP: Duration = Duration::from_secs(1);

/// Searches begin together, once in this time, so that they share transactions.
pub const TOGETHER: Duration = Duration::from_millis(75);

/// How many waits a cycle may have.
const DEPTH: usize = 16;

/// Keys that one search follows at most.
const KEYS: usize = 2048;

/// From then on the youngest call of a cycle aborts.
const YOUNGEST: Duration = Duration::from_secs(2);

/// From then on any call of a cycle does.
const ANY: Duration = Duration::from_secs(4);

/// A search for a cycle of one waiting call. It wants ranges read, and takes what they show.
#[derive(Debug)]
pub struct Search {
    /// What all names begin with.
    prefix: Key,
    /// The keys by which the call waits.
    own: Vec<Incarnation>,
    /// All keys that it has come to; and those of them whose waiters are looked for next.
    nodes: Vec<Node>,
    seen: BTreeSet<Incarnation>,
    frontier: Vec<usize>,
    depth: usize,
    /// The families that were read, and those that are to be.
    read: BTreeMap<Key, Vec<Kv>>,
    wanted: BTreeSet<Key>,
    is_bounded: bool,
}

/// A key that a search has come to.
#[derive(Debug, Clone)]
struct Node {
    key: Incarnation,
    /// The node before: what it waits for, or the waiting key that shows it.
    from: Option<usize>,
    by: By,
}

/// How a search came to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// It waits for the one before, and was written last at this revision.
    Waits(Revision),
    /// It is of the group of the waiting key before.
    Group,
    /// The value of the waiting key before lists it; or the task of the call itself holds it.
    Held,
}

/// A cycle: the call waits for the first key, and its task holds the last one.
#[derive(Debug)]
pub struct Cycle {
    own: Vec<Incarnation>,
    path: Vec<Node>,
}

impl Search {
    /// Contenders of a name that a search reads at most, the oldest.
    pub const CONTENDERS: u32 = 512;

    /// Begins a search for a call that waits by `own` and whose task holds `held`; `prefix`: what all names begin with.
    pub fn new(prefix: &str, own: Vec<Incarnation>, held: Vec<Incarnation>) -> Self {
        let mut search = Self {
            prefix: prefix.into(),
            own,
            nodes: Vec::new(),
            seen: BTreeSet::new(),
            frontier: Vec::new(),
            depth: 0,
            read: BTreeMap::new(),
            wanted: BTreeSet::new(),
            is_bounded: false,
        };
        for key in held {
            search.reach(key, None, By::Held);
        }
        search.want();
        search
    }

    /// Begins a search for the call whose waiting key etcd has shown, as far as its value tells what it waits by and holds.
    pub fn of_waiter(prefix: &str, kv: &Kv) -> Self {
        let key = (String::from_utf8_lossy(&kv.key).into(), kv.create_revision);
        let group = group_of(&kv.value).into_iter().map(|key| (key, kv.create_revision));
        let own: Vec<Incarnation> = std::iter::once(key).chain(group).collect();
        let held = own.iter().cloned().chain(holds_of(&kv.value)).collect();
        Self::new(prefix, own, held)
    }

    /// The families that are to be read, by [`Self::range`]; none once it is over.
    pub fn wanted(&self) -> impl Iterator<Item = &Key> {
        self.wanted.iter()
    }

    /// How a family is to be read.
    pub fn range(family: &Key) -> Op {
        transactions::oldest(family, Self::CONTENDERS, true)
    }

    /// Whether it has left keys out, and so may have missed a cycle.
    pub fn is_bounded(&self) -> bool {
        self.is_bounded
    }

    /// Takes in the contenders of a family: the cycle, if it has found one.
    pub fn answered(&mut self, family: &Key, found: Vec<Kv>) -> Option<Cycle> {
        self.is_bounded |= found.len() >= Self::CONTENDERS as usize;
        if self.wanted.remove(family) {
            self.read.insert(family.clone(), found);
        }
        while self.wanted.is_empty() && !self.frontier.is_empty() {
            let closing = self.nodes.iter().position(|node| self.closes(&node.key));
            if let Some(last) = closing {
                self.frontier.clear();
                return Some(self.cycle(last));
            }
            self.advance();
        }
        None
    }

    /// Goes on from all keys of the frontier to those that wait for them.
    fn advance(&mut self) {
        self.depth += 1;
        if self.depth > DEPTH {
            self.is_bounded = true;
            return self.frontier.clear();
        }
        for from in std::mem::take(&mut self.frontier) {
            // What waits for it waits for the one before too, if that excludes all.
            let before =
                self.nodes[from].from.filter(|_| matches!(self.nodes[from].by, By::Waits(_)));
            let before = before.map(|before| Seat::of_key(self.nodes[before].key.0.as_bytes()));
            if before.is_some_and(|seat| seat.mode() == Mode::Exclusive) {
                continue;
            }
            let blocker = self.nodes[from].key.clone();
            let family = family_of(&blocker.0).and_then(|family| self.read.get_key_value(family));
            let Some((family, found)) = family.map(|(family, found)| (family.clone(), found))
            else {
                continue;
            };
            let waits = |kv: &&Kv| {
                step();
                contends(&family, &kv.key) && excludes(&blocker, &kv.key, kv.create_revision)
            };
            let is_new = |kv: &&Kv| {
                let key = String::from_utf8_lossy(&kv.key);
                !self.seen.contains(&(Key::from(&*key), kv.create_revision))
            };
            let waiters: Vec<Kv> = found.iter().filter(waits).filter(is_new).cloned().collect();
            for kv in waiters {
                let created = kv.create_revision;
                let key: Key = String::from_utf8_lossy(&kv.key).into();
                let Some(waiter) =
                    self.reach((key, created), Some(from), By::Waits(kv.mod_revision))
                else {
                    continue;
                };
                for key in group_of(&kv.value) {
                    self.reach((key, created), Some(waiter), By::Group);
                }
                for held in holds_of(&kv.value) {
                    self.reach(held, Some(waiter), By::Held);
                }
            }
        }
        self.want();
    }

    /// The search comes to a key; `None`: it was there before, or goes no further.
    fn reach(&mut self, key: Incarnation, from: Option<usize>, by: By) -> Option<usize> {
        step();
        if !key.0.starts_with(&*self.prefix) || self.seen.contains(&key) {
            return None;
        }
        if self.nodes.len() >= KEYS {
            self.is_bounded = true;
            return None;
        }
        self.seen.insert(key.clone());
        self.nodes.push(Node { key, from, by });
        self.frontier.push(self.nodes.len() - 1);
        Some(self.nodes.len() - 1)
    }

    /// Wants the families of the frontier that were not read.
    fn want(&mut self) {
        let families = self.frontier.iter().filter_map(|at| family_of(&self.nodes[*at].key.0));
        let missing = families.filter(|family| !self.read.contains_key(*family));
        self.wanted = missing.map(Key::from).collect();
    }

    /// Whether the call waits for this key.
    fn closes(&self, key: &Incarnation) -> bool {
        let mut own = self.own.iter();
        own.any(|(own, created)| {
            family_of(own) == family_of(&key.0) && excludes(key, own.as_bytes(), *created)
        })
    }

    fn cycle(&self, last: usize) -> Cycle {
        let path = std::iter::successors(Some(last), |at| self.nodes[*at].from);
        Cycle { own: self.own.clone(), path: path.map(|at| self.nodes[at].clone()).collect() }
    }
}

/// Whether a key excludes another one of its name.
fn excludes(older: &Incarnation, younger: &[u8], created: Revision) -> bool {
    older.1 < created && Seat::of_key(younger).is_excluded_by(Seat::of_key(older.0.as_bytes()))
}

impl Cycle {
    /// Whether a call that has waited for this long aborts.
    pub fn is_to_be_cut_after(&self, waited: Duration) -> bool {
        let mut waiting = self.path.iter().filter(|node| node.by != By::Held);
        let own = self.own.first().map(|(_, created)| *created);
        let is_youngest = waiting.all(|node| Some(node.key.1) < own);
        waited >= ANY || (waited >= YOUNGEST && is_youngest)
    }

    /// All keys on it, in the order in which they wait.
    pub fn keys(&self) -> impl Iterator<Item = &Incarnation> {
        self.own.iter().take(1).chain(self.path.iter().map(|node| &node.key))
    }

    /// The keys that keep the call before them waiting, in order.
    pub fn blockers(&self) -> impl Iterator<Item = &Key> {
        // A waiting key is none if it only shows the one before it on the path.
        let shown = |at: usize| self.path[at].by == By::Held || self.path[at].by == By::Group;
        let blocks = move |at: &usize| *at == 0 || !shown(*at - 1);
        (0..self.path.len()).filter(blocks).map(|at| &self.path[at].key.0)
    }

    /// Deletes the keys by which the call waits if the whole cycle still stands, and reads the blockers. A waiting key must be as it was
    /// read; of one that a task holds the incarnation says enough, because the key that lists it goes before a hand-over.
    pub fn abort(&self) -> Txn {
        let unchanged = |node: &Node| match (&node.key, node.by) {
            ((key, _), By::Waits(modified)) => Compare::Modified(key.clone(), modified),
            ((key, created), By::Group | By::Held) => Compare::Created(key.clone(), *created),
        };
        let own = self.own.iter();
        let own = own.map(|(key, created)| Compare::Created(key.clone(), *created));
        let reads = self.blockers().map(|key| Op::Get { key: key.clone(), values: true });
        let deletes = self.own.iter().map(|(key, _)| Op::Delete(key.clone()));
        Txn {
            when: own.chain(self.path.iter().map(unchanged)).collect(),
            then: reads.chain(deletes).collect(),
            or_else: Vec::new(),
        }
    }

    /// The blockers with their records, as the answer to the abort shows them.
    pub fn blocked_by(&self, answer: TxnAnswer) -> Arc<[Blocker]> {
        let records = answer.answers.into_iter().map(|mut kvs| kvs.pop());
        let blocker = |(key, kv): (&Key, Option<Kv>)| Blocker {
            key: key.clone(),
            record: kv.map_or_else(Arc::default, |kv| kv.value.into()),
        };
        self.blockers().zip(records).map(blocker).collect()
    }
}

/// The searches of this process.
#[derive(Debug, Default)]
pub struct Searches {
    all: BTreeMap<CallId, Search>,
    /// The families that they want.
    reads: Line<(CallId, Key)>,
    was_bounded: bool,
}

impl Searches {
    /// Begins a search for a call, unless one is under way.
    pub fn begin(&mut self, call: CallId, search: impl FnOnce() -> Search) {
        if let Entry::Vacant(entry) = self.all.entry(call) {
            entry.insert(search());
            self.ask(call);
        }
    }

    /// Has read what a search wants; if it is over, forgets it. True if it is the first that has reached a bound.
    fn ask(&mut self, call: CallId) -> bool {
        let Some(search) = self.all.get(&call) else { return false };
        let over = search.wanted.is_empty();
        let bounded = over && search.is_bounded && !self.was_bounded;
        search.wanted().for_each(|family| self.reads.push((call, family.clone())));
        self.was_bounded |= bounded;
        if over {
            self.all.remove(&call);
        }
        bounded
    }

    /// Whether families wait to be read, and a transaction may be sent.
    pub fn next_reads(&mut self) -> Option<Vec<(CallId, Key)>> {
        let all = &self.all;
        // As two keys: 32 ranges with values go in one transaction.
        self.reads.next(|(call, _)| all.contains_key(call).then_some(2))
    }

    /// Reads were answered, or not: the cycles that were found, and whether a search has reached a bound for the first time.
    pub fn answered(
        &mut self,
        reads: Vec<(CallId, Key)>,
        result: Result<TxnAnswer, Failure>,
    ) -> (Vec<(CallId, Cycle)>, bool) {
        self.reads.done(reads.len(), result.is_ok());
        let (mut cycles, mut bounded) = (Vec::new(), false);
        let answers = match result {
            Ok(answer) => answer.answers,
            // One range that this process may not read fails all: they are sent again in halves, and it alone shows nothing.
            Err(Failure::Refused(Refusal::PermissionDenied, _)) if reads.len() > 1 => {
                let keys = reads.len();
                self.reads.again(reads, Some(keys));
                return (cycles, bounded);
            }
            Err(Failure::Refused(Refusal::PermissionDenied, _)) => vec![Vec::new()],
            Err(_) => {
                reads.iter().for_each(|(call, _)| self.forget(*call));
                return (cycles, bounded);
            }
        };
        for ((call, family), found) in reads.into_iter().zip(answers) {
            let Some(search) = self.all.get_mut(&call) else { continue };
            let depth = search.depth;
            let cycle = search.answered(&family, found);
            // Until it has all that it wanted, it wants nothing more.
            if search.wanted.is_empty() || search.depth > depth {
                bounded |= self.ask(call);
            }
            cycles.extend(cycle.map(|cycle| (call, cycle)));
        }
        (cycles, bounded)
    }

    /// A call does not wait any more.
    pub fn forget(&mut self, call: CallId) {
        self.all.remove(&call);
    }

    /// What is under way may never be answered, and holds nothing back any more.
    pub fn reopen_window(&mut self) {
        self.reads.reopen_window();
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}
