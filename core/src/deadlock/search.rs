//! Search: a cycle among the contenders of all processes, found by reading them and their edges (rule P38).
//!
//! A key leads to each older contender that excludes it, and to the other keys of its group; one that is admitted, to the waiting
//! keys its edges name. The search explores what it has read; what is missing it asks for, and explores again. What it finds may
//! be out of date: the abort's transaction proves it, or not.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::edges::{Edge, STEP};
use crate::ids::{
    ContenderId, Incarnation, Key, Revision, contends, edges_of, family_of, group_of, session_root,
};
use crate::moment::Moment;
use crate::output::Blocker;
use crate::request::{Compare, Kv, Op, TxnAnswer};
use crate::seat::Seat;
use crate::steps::step;
use crate::transactions;

/// How many keys a cycle may have: 16 waiting ones, each with its blocker, and writers between readers.
const DEPTH: usize = 48;

/// Keys one search follows at most.
const NODES: usize = 2048;

/// Reads of one transaction.
const READS: usize = 32;

/// From its second step on the call with the youngest waiting key of a cycle cuts it.
const YOUNGEST: Duration = Duration::from_millis(1500);

/// From its fourth step on any call does.
const ANY: Duration = Duration::from_millis(3500);

/// The searches of this process.
#[derive(Debug, Default)]
pub struct Searches {
    /// The last one from each waiting contender, whichever calls depend on it, and when it began.
    all: BTreeMap<ContenderId, (Moment, Search)>,
}

/// A search from one waiting key. It asks for what it needs: carry its reads out in one transaction, and answer it.
#[derive(Debug)]
pub struct Search {
    /// What all names begin with; and session keys and edges.
    prefix: Key,
    root: String,
    start: Incarnation,
    /// The contenders of each family, and the edges of each key, that were read.
    read: BTreeMap<Key, Vec<Kv>>,
    /// What is being read; nothing once it is over.
    asked: Vec<Key>,
}

/// How a key leads to the next.
#[derive(Debug)]
enum By {
    /// The next one excludes it.
    Exclusion,
    /// The next one is of the same group.
    Group,
    /// The task that holds it waits by the next one, as this edge of this revision says.
    Edge(Edge, Revision),
}

/// A key, and how it leads to the next.
#[derive(Debug)]
struct Step {
    key: Incarnation,
    record: Arc<[u8]>,
    by: By,
}

/// A cycle: the last key leads back to the first one.
#[derive(Debug)]
pub struct Cycle {
    path: Vec<Arc<Step>>,
}

impl Searches {
    /// Begins a search from a waiting contender's key, unless one is under way, or began a moment ago: what to read first.
    pub fn begin(
        &mut self,
        now: Moment,
        contender: ContenderId,
        prefix: &str,
        start: Incarnation,
    ) -> Vec<Op> {
        let last = self.all.get(&contender);
        if last.is_some_and(|(begun, last)| !last.asked.is_empty() || now - *begun < STEP / 2) {
            return Vec::new();
        }
        let search = Search::new(prefix, start);
        let reads = search.reads();
        self.all.insert(contender, (now, search));
        reads
    }

    /// A read of a search was answered, or not: what to read next, or the cycle it has found, if it is not over.
    pub fn answered(
        &mut self,
        contender: ContenderId,
        answer: Option<TxnAnswer>,
    ) -> (Vec<Op>, Option<Cycle>) {
        let Some((_, search)) = self.all.get_mut(&contender) else {
            return (Vec::new(), None);
        };
        let cycle = search.answered(answer);
        (search.reads(), cycle)
    }

    /// A contender does not wait any more.
    pub fn forget(&mut self, contender: ContenderId) {
        self.all.remove(&contender);
    }
}

impl Search {
    /// Contenders of a name that a search reads at most, the oldest; and edges of a key.
    pub const CONTENDERS: u32 = 128;

    /// Begins a search from a waiting key; `prefix`: what all names begin with.
    pub fn new(prefix: &str, start: Incarnation) -> Self {
        Self {
            asked: family_of(&start.0).map(Key::from).into_iter().collect(),
            prefix: prefix.into(),
            root: session_root(prefix),
            start,
            read: BTreeMap::new(),
        }
    }

    /// What is to be read now; nothing once it is over.
    pub fn reads(&self) -> Vec<Op> {
        let read = |prefix: &Key| transactions::oldest(prefix, Self::CONTENDERS, true);
        self.asked.iter().map(read).collect()
    }

    /// Takes the answer to its reads, or `None` if there is none: the cycle, if it has found one. It is over if it has nothing to read.
    pub fn answered(&mut self, answer: Option<TxnAnswer>) -> Option<Cycle> {
        let asked = std::mem::take(&mut self.asked).into_iter();
        let found = answer?.answers.into_iter();
        self.read.extend(asked.zip(found));
        let mut missing = BTreeSet::new();
        let cycle = self.explore(&mut missing);
        if cycle.is_none() {
            self.asked = missing.into_iter().take(READS).collect();
        }
        if self.asked.is_empty() {
            self.read.clear();
        }
        cycle
    }

    /// Follows all that has been read: a cycle if there is one, and else what is missing.
    fn explore(&self, missing: &mut BTreeSet<Key>) -> Option<Cycle> {
        let mut seen = BTreeSet::new();
        // Keys, each with the way to it.
        let mut next = VecDeque::from([(self.start.clone(), Vec::<Arc<Step>>::new())]);
        while let Some((key, path)) = next.pop_front() {
            step();
            let reached = path.last().map(|step| &step.by);
            for (step, to) in self.ways(key, reached, missing).unwrap_or_default() {
                let excluded = matches!(step.by, By::Exclusion);
                // A way that comes back by exclusion is no end: only an edge or a group says which call to take out.
                let closes = to == self.start && !excluded;
                let follows = path.len() < DEPTH
                    && seen.len() < NODES
                    && to.0.starts_with(&*self.prefix)
                    && seen.insert((to.clone(), excluded));
                if closes || follows {
                    let mut path = path.clone();
                    path.push(Arc::new(step));
                    if closes {
                        return Some(Cycle { path });
                    }
                    next.push_back((to, path));
                }
            }
        }
        None
    }

    /// The ways on from a key, each with the key it leads to; `None`: it is not there, as far as is known.
    fn ways(
        &self,
        key: Incarnation,
        reached: Option<&By>,
        missing: &mut BTreeSet<Key>,
    ) -> Option<Vec<(Step, Incarnation)>> {
        let family = family_of(&key.0)?;
        let contenders = self.known(family.into(), missing).iter();
        let contenders: Vec<&Kv> = contenders.filter(|kv| contends(family, &kv.key)).collect();
        let is_own = |kv: &&&Kv| kv.key == key.0.as_bytes() && kv.create_revision == key.1;
        let own = contenders.iter().find(is_own)?;
        let record: Arc<[u8]> = own.value.clone().into();
        let mut ways = Vec::new();
        let mut add = |by, to| {
            let (key, record) = (key.clone(), record.clone());
            ways.push((Step { key, record, by }, to));
        };
        // A group waits for its other keys, whether this one is admitted or not. Not again from
        // a key reached that way: two keys of one group would look like a cycle.
        if !matches!(reached, Some(By::Group)) {
            for sibling in group_of(&own.value) {
                add(By::Group, (sibling, key.1));
            }
        }
        let mut admitted = true;
        for older in contenders.iter().filter(|older| excludes(older, own)) {
            admitted = false;
            add(By::Exclusion, incarnation(older));
        }
        // A key that excludes the one before it leads on by its edges. If one that an edge came to is admitted, that edge is void.
        if admitted && matches!(reached, Some(By::Exclusion)) {
            for kv in self.known(edges_of(&self.root, &key.0), missing) {
                if let Some(edge) = Edge::parse(&self.root, &key, &kv.key, &kv.value) {
                    let waits = edge.waits.clone();
                    add(By::Edge(edge, kv.mod_revision), waits);
                }
            }
        }
        Some(ways)
    }

    /// What is known to begin with this; nothing while it was not read.
    fn known(&self, prefix: Key, missing: &mut BTreeSet<Key>) -> &[Kv] {
        let known = self.read.get(&prefix);
        if known.is_none() {
            missing.insert(prefix);
        }
        known.map_or(&[], Vec::as_slice)
    }
}

/// Whether one contender keeps another waiting by itself. Permits are not followed (rule P38).
fn excludes(older: &Kv, younger: &Kv) -> bool {
    match (Seat::of_key(&older.key), Seat::of_key(&younger.key)) {
        (Seat::Permit(_), _) | (_, Seat::Permit(_)) => false,
        (Seat::Shared(_), Seat::Shared(_)) => false,
        _ => older.create_revision < younger.create_revision,
    }
}

fn incarnation(kv: &Kv) -> Incarnation {
    (String::from_utf8_lossy(&kv.key).into(), kv.create_revision)
}

impl Cycle {
    /// The edge that leads back to where the search began; `None`: a group's key does.
    pub fn closing_edge(&self) -> Option<&Edge> {
        match &self.path.last()?.by {
            By::Edge(edge, _) => Some(edge),
            By::Exclusion | By::Group => None,
        }
    }

    /// Whether a call that has waited for so long is to cut it. A group that is part of it is left the time to step back.
    pub fn is_to_be_cut_after(&self, waited: Duration) -> bool {
        let created = |step: &Arc<Step>| step.key.1;
        let youngest = self.path.first().map(created) == self.path.iter().map(created).max();
        let has_group = self.path.iter().any(|step| matches!(step.by, By::Group));
        waited >= ANY || (waited >= YOUNGEST && youngest && !has_group)
    }

    /// All keys on it.
    pub fn keys(&self) -> impl Iterator<Item = Incarnation> + '_ {
        self.path.iter().map(|step| step.key.clone())
    }

    /// The conditions under which it still stands; few enough for one transaction.
    pub fn conditions(&self, root: &str) -> Vec<Compare> {
        let keys = self.keys().map(|(key, created)| Compare::Created(key, created));
        let edges = self.path.iter().filter_map(|step| match &step.by {
            By::Edge(edge, modified) => Some(Compare::Modified(edge.key(root), *modified)),
            By::Exclusion | By::Group => None,
        });
        keys.chain(edges).collect()
    }

    /// The keys that keep the one before them on the path waiting, in order. Of a writer and the readers before it only these.
    pub fn blockers(&self) -> Arc<[Blocker]> {
        let pairs = self.path.iter().zip(self.path.iter().skip(1));
        let excludes = |step: &Step| matches!(step.by, By::Exclusion);
        let blockers = pairs.filter(|(before, step)| excludes(before) && !excludes(step));
        let blocker = |(_, step): (_, &Arc<Step>)| Blocker {
            key: step.key.0.clone(),
            record: step.record.clone(),
        };
        blockers.map(blocker).collect()
    }
}
