//! Deadlock detection: finds cycles of calls that wait for each other (rule P38).
//!
//! The value of a nested call's waiting key lists the keys that its task holds. A search follows the waits backwards: from the
//! keys that a task holds to the younger contenders that wait for them, to the keys that the tasks of those hold, and so on. It
//! has found a cycle when it reaches a key that the call itself waits for. Its reads may be out of date: the abort proves the
//! cycle, or does nothing.
//!
//! A cycle inside the process needs no reads. A walk finds it when the call that closes it begins to wait.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::call::{Call, Calls};
use crate::contender::Contender;
use crate::ids::{CallId, Incarnation, Key, Revision, family_of, listed_by};
use crate::moment::Moment;
use crate::name::{Name, Names};
use crate::outbox::Line;
use crate::output::Blocker;
use crate::ownership::Ownership;
use crate::pool::Sessions;
use crate::request::{Answer, Compare, Failure, Kv, Op, Refusal, Txn, TxnAnswer};
use crate::seat::{Mode, Seat};
use crate::steps::step;
use crate::transactions;

/// How long a nested call waits before it puts its own key, and the time between its searches.
const STEP: Duration = Duration::from_secs(1);

/// Searches begin at multiples of this, so that they share transactions.
const TOGETHER: Duration = Duration::from_millis(75);

/// The most waits in a row that a search follows.
const DEPTH: usize = 16;

/// The most keys that a search follows.
const KEYS: usize = 2048;

/// How long a call waits before it aborts as the youngest of its cycle.
const YOUNGEST: Duration = Duration::from_secs(2);

/// How long any other call of a cycle waits before it aborts.
const ANY: Duration = Duration::from_secs(4);

/// The most calls that the walk inside the process visits.
const WALK: usize = 64;

/// Returns when a nested call that waits now next puts its own key, or searches for a cycle.
pub fn next_search(now: Moment) -> Moment {
    (now + STEP).rounded_up(TOGETHER)
}

/// A search for a cycle through one waiting call. It requests ranges, and takes in their keys.
#[derive(Debug, Default)]
pub struct Search {
    /// The prefix of all names.
    prefix: Key,
    /// The keys by which the call waits.
    own: Vec<Incarnation>,
    /// All keys that it has reached.
    nodes: BTreeMap<Incarnation, Node>,
    /// The keys whose waiters it looks for next, once their families are read. Empty once the search is over.
    frontier: Vec<Incarnation>,
    depth: usize,
    /// The families of all these keys, and what was read of them.
    families: BTreeSet<Key>,
    read: BTreeMap<Key, Vec<Kv>>,
    /// The families to read, up to [`Self::CONTENDERS`] keys each. The caller removes them.
    pub wanted: Vec<Key>,
    /// True if it has left out keys, and so may have missed a cycle.
    is_bounded: bool,
    cycle: Option<Cycle>,
}

/// How a search reached a key.
#[derive(Debug)]
struct Node {
    /// The previous key on the way. `None`: the task of the call holds this key.
    from: Option<Incarnation>,
    /// The mod revision of this key, if it waits for the previous one. `None`: the previous key lists this one.
    waits: Option<Revision>,
}

/// A cycle. The call waits for the first blocker, and its task holds the last one.
#[derive(Debug)]
pub struct Cycle {
    /// All its keys in the order of the waits, beginning with the call's own.
    pub keys: Vec<Incarnation>,
    /// The keys for which the previous ones wait.
    blockers: Vec<Key>,
    /// The shortest wait of the call before it aborts.
    pub patience: Duration,
    /// Deletes the keys by which the call waits if the whole cycle still exists, and reads the blockers.
    pub abort: Txn,
}

impl Search {
    /// The most contenders of a name that a search reads, the oldest.
    pub const CONTENDERS: u32 = 512;

    /// Begins a search for a call that waits by `own` and whose task holds `held`.
    pub fn new(prefix: &str, own: Vec<Incarnation>, held: Vec<Incarnation>) -> Self {
        let mut search = Self { prefix: prefix.into(), own, ..Self::default() };
        for key in held {
            search.reach(key, Node { from: None, waits: None });
        }
        search
    }

    /// Begins a search for a call of which only the waiting key is known, with the keys that its value lists.
    pub fn of_waiter(prefix: &str, kv: &Kv) -> Self {
        let key = (String::from_utf8_lossy(&kv.key).into(), kv.create_revision);
        let held: Vec<Incarnation> = std::iter::once(key).chain(listed_by(kv)).collect();
        let own = held.iter().filter(|(_, created)| *created == kv.create_revision);
        Self::new(prefix, own.cloned().collect(), held)
    }

    /// Takes in the contenders of a family. Returns the cycle, if it has found one.
    pub fn answered(&mut self, family: &Key, found: Vec<Kv>) -> Option<Cycle> {
        self.is_bounded |= found.len() >= Self::CONTENDERS as usize;
        if self.families.contains(family) {
            self.read.insert(family.clone(), found);
        }
        while self.cycle.is_none() && !self.frontier.is_empty() {
            if self.read.len() < self.families.len() {
                return None;
            }
            self.advance();
        }
        self.frontier.clear();
        self.cycle.take()
    }

    /// Goes on from the keys of the frontier to those that wait for them, and to the keys that these list.
    fn advance(&mut self) {
        let frontier = std::mem::take(&mut self.frontier);
        if self.depth == DEPTH {
            self.is_bounded = true;
            return;
        }
        self.depth += 1;
        let read = std::mem::take(&mut self.read);
        for blocker in frontier {
            let found = family_of(&blocker.0).and_then(|family| read.get(family));
            for kv in found.into_iter().flatten() {
                step();
                let key = str::from_utf8(&kv.key).unwrap_or_default();
                if !excludes(&blocker, key, kv.create_revision) {
                    continue;
                }
                let waiter: Incarnation = (key.into(), kv.create_revision);
                let node = Node { from: Some(blocker.clone()), waits: Some(kv.mod_revision) };
                if self.reach(waiter.clone(), node) {
                    for listed in listed_by(kv) {
                        self.reach(listed, Node { from: Some(waiter.clone()), waits: None });
                    }
                }
            }
        }
        self.read = read;
    }

    /// Adds a key to the search. If it excludes a key of the call, there is a cycle. Returns true if the key is new.
    fn reach(&mut self, key: Incarnation, node: Node) -> bool {
        step();
        let family = family_of(&key.0).filter(|family| family.starts_with(&*self.prefix));
        let Some(family) = family.filter(|_| !self.nodes.contains_key(&key)) else { return false };
        if self.nodes.len() >= KEYS {
            self.is_bounded = true;
            return false;
        }
        if !self.families.contains(family) {
            self.families.insert(family.into());
            self.wanted.push(family.into());
        }
        // What waits for this waiting key also waits for the previous one, if that excludes every mode.
        let before = node.from.as_ref().filter(|_| node.waits.is_some());
        if before.is_none_or(|(before, _)| seat_of(before).mode() != Mode::Exclusive) {
            self.frontier.push(key.clone());
        }
        self.nodes.insert(key.clone(), node);
        if self.cycle.is_none() && self.own.iter().any(|(own, born)| excludes(&key, own, *born)) {
            self.cycle = Some(self.cycle_from(&key));
        }
        true
    }

    /// Returns the cycle whose first blocker is this key. The abort compares the mod revisions of waiting keys. For held keys the
    /// create revision suffices, because a key that lists a held one is deleted before a hand-over.
    fn cycle_from(&self, blocker: &Incarnation) -> Cycle {
        let own = self.own.first();
        let mut cycle = Cycle {
            keys: own.into_iter().cloned().collect(),
            blockers: Vec::new(),
            patience: YOUNGEST,
            abort: Txn::default(),
        };
        let created = |(key, created): &Incarnation| Compare::Created(key.clone(), *created);
        cycle.abort.when = self.own.iter().map(created).collect();
        // A waiting key that only lists the previous key blocks no call.
        let (mut next, mut blocks) = (self.nodes.get_key_value(blocker), true);
        while let Some((key, node)) = next {
            if blocks {
                cycle.blockers.push(key.0.clone());
            }
            blocks = node.waits.is_some();
            if blocks && own.is_none_or(|(_, own)| key.1 >= *own) {
                cycle.patience = ANY;
            }
            let changed = node.waits.map(|at| Compare::Modified(key.0.clone(), at));
            cycle.abort.when.push(changed.unwrap_or_else(|| created(key)));
            cycle.keys.push(key.clone());
            next = node.from.as_ref().and_then(|from| self.nodes.get_key_value(from));
        }
        let reads = cycle.blockers.iter().map(|key| Op::Get { key: key.clone(), values: true });
        let deletes = self.own.iter().map(|(key, _)| Op::Delete(key.clone()));
        cycle.abort.then = reads.chain(deletes).collect();
        cycle
    }
}

fn seat_of(key: &str) -> Seat {
    Seat::of_key(key.as_bytes())
}

/// Returns true if the older key excludes the younger one.
fn excludes((older, born): &Incarnation, younger: &str, created: Revision) -> bool {
    let same = *born < created && family_of(older) == family_of(younger);
    same && seat_of(younger).mode().is_excluded_by(seat_of(older))
}

impl Cycle {
    /// Returns the blockers with their records, which the response to the abort contains.
    pub fn blocked_by(&self, answer: TxnAnswer) -> Arc<[Blocker]> {
        let record = |kv: Option<Kv>| kv.map_or_else(Arc::default, |kv| kv.value.into());
        let blocker = |(key, kv): (&Key, _)| Blocker { key: key.clone(), record: record(kv) };
        self.blockers.iter().zip(answer.firsts()).map(blocker).collect()
    }
}

#[derive(Debug, Default)]
pub struct Searches {
    /// The searches that are not over, each for a waiting call.
    pub all: BTreeMap<CallId, Search>,
    /// The families to read for them.
    pub reads: Line<(CallId, Key)>,
    /// True once one of them has left out keys.
    pub is_bounded: bool,
}

impl Searches {
    /// Begins a search for a call, unless one is under way.
    pub fn begin(&mut self, call: CallId, search: Search) {
        self.all.entry(call).or_insert(search);
        self.go_on(call);
    }

    /// Queues the reads that a search wants; if it is over, removes it.
    fn go_on(&mut self, call: CallId) {
        let Some(search) = self.all.get_mut(&call) else { return };
        match search.frontier.is_empty() {
            true => drop(self.all.remove(&call)),
            false => {
                search.wanted.drain(..).for_each(|of| self.reads.pending.push_back((call, of)))
            }
        }
    }

    /// Returns the next reads, if a transaction of them may be sent.
    pub fn next_reads(&mut self) -> Option<(Vec<(CallId, Key)>, Txn)> {
        let all = &self.all;
        // Counted as two keys, so that a transaction has at most 32 ranges with values.
        let reads = self.reads.next(|(call, _)| all.contains_key(call).then_some(2))?;
        let range = |family| transactions::oldest(family, Search::CONTENDERS, true);
        let then = reads.iter().map(|(_, family)| range(family)).collect();
        Some((reads, Txn { then, ..Txn::default() }))
    }

    /// Takes in the result of reads. Returns the cycles found.
    pub fn answered(&mut self, reads: Vec<(CallId, Key)>, result: Answer) -> Vec<(CallId, Cycle)> {
        self.reads.done(reads.len(), result.is_ok());
        let answers = match result {
            Ok(answer) => answer.answers,
            // If this process may not read one of the ranges, all fail. They are sent again in halves.
            Err(Failure::Refused(Refusal::PermissionDenied, _)) if reads.len() > 1 => {
                let keys = reads.len();
                self.reads.again(reads, Some(keys));
                return Vec::new();
            }
            // A failed read shows no keys.
            Err(_) => vec![Vec::new(); reads.len()],
        };
        let mut cycles = Vec::new();
        for ((call, family), found) in reads.into_iter().zip(answers) {
            let Some(search) = self.all.get_mut(&call) else { continue };
            let cycle = search.answered(&family, found);
            self.is_bounded |= search.is_bounded;
            cycles.extend(cycle.map(|cycle| (call, cycle)));
            self.go_on(call);
        }
        cycles
    }
}

/// Returns the cycle inside the process that a nested call closes. The walk follows the waits forwards: from the names of the
/// call to the calls that hold them, or soon will, and to what their tasks wait for. The task of the call itself holds the last.
pub fn cycle_here(
    call: CallId,
    now: Moment,
    (calls, names, sessions): (&Calls, &Names, &Sessions),
) -> Option<Arc<[Blocker]>> {
    let held: BTreeSet<CallId> = calls.outer(call).map(|(of, _)| of).collect();
    let (mut seen, mut ways) = (BTreeSet::from([call]), VecDeque::from([Vec::new()]));
    while let Some(way) = ways.pop_front() {
        step();
        let last = way.last().copied().unwrap_or(call);
        if held.contains(&last) {
            let blocker = |of: &CallId| {
                let of = calls.get(*of)?;
                let name = names.get(*of.names.first()?)?;
                Some(Blocker { key: name.text.clone(), record: of.record.clone() })
            };
            return Some(way.iter().filter_map(blocker).collect());
        }
        let waits = |it: &&Call| it.until.is_none_or(|until| until > now);
        let ahead = calls.waiting(last).filter(waits).into_iter().flat_map(|of| {
            let (mode, all) = (of.wish.mode, of.names.iter());
            let all = all.filter_map(|name| names.get(*name));
            all.flat_map(move |name| ahead_at(name, mode, now, calls, sessions))
        });
        for to in calls.inner(last).chain(ahead).take(WALK) {
            step();
            if seen.len() <= WALK && seen.insert(to) {
                ways.push_back([&way[..], &[to]].concat());
            }
        }
    }
    None
}

/// Returns the calls of this process that keep a call of this mode from a name.
fn ahead_at<'a>(
    name: &'a Name,
    mode: Mode,
    now: Moment,
    calls: &'a Calls,
    sessions: &'a Sessions,
) -> impl Iterator<Item = CallId> + 'a {
    let lease = |it: &Contender| sessions.all.get(&it.session)?.lease.as_ref();
    let in_time = move |it: &Contender| lease(it).is_some_and(|it| !it.deadline.is_over(now));
    let held = name.held_against(mode).filter(move |(_, it)| in_time(it));
    let holders = held.filter_map(|(_, it)| it.held()).flat_map(Ownership::holders);
    let is_put = move |it: &Contender| it.key.is_some() && mode.is_excluded_by(it.seat);
    let put = name.in_line().filter(move |(_, it)| is_put(it));
    holders.chain(put.filter_map(|(_, it)| name.serves(it, calls)))
}
