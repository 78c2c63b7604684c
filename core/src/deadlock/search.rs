//! Search: a cycle among the contenders of all processes, found by reading them and their edges (rule P38).
//!
//! A waiting key depends on each older contender that excludes it, on those that exclude these, and so on within its name. Each
//! of them leads on: to the other keys of its group, and, if it is admitted, to the waiting keys its edges name. The search
//! explores what it has read; what is missing it asks for, and explores again. What it finds may be out of date: the abort's
//! transaction proves it, or not.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::edges::Edge;
use crate::ids::{Incarnation, Key, Revision, edges_of, family_of, group_of};
use crate::output::Blocker;
use crate::request::{Compare, Kv, Op, TxnAnswer};
use crate::seat::{Mode, Seat};
use crate::steps;
use crate::transactions;

/// How many waiting keys a cycle may have.
const HOPS: usize = 16;

/// Waiting keys one search follows at most.
const NODES: usize = 256;

/// Contenders of a name, and edges of a key, that a search reads at most.
const MOST: u32 = 128;

/// Reads of one transaction.
const READS: usize = 32;

/// A read that a search needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Read {
    /// All contenders of a family.
    Family(Key),
    /// All edges of a key.
    Edges(Key),
}

/// How a search goes on after an answer.
#[derive(Debug)]
pub enum Progress {
    /// It reads on.
    Reads,
    /// There is no cycle.
    Nothing,
    Found(Cycle),
}

/// A search from one waiting key.
#[derive(Debug)]
pub struct Search {
    /// What session keys and edges begin with; and all names.
    root: Key,
    prefix: Key,
    start: Incarnation,
    read: BTreeMap<Read, Vec<Kv>>,
    asked: Vec<Read>,
}

/// How one waiting key leads to the next.
#[derive(Debug, Clone)]
pub struct Link {
    /// The waiting key.
    waiting: Incarnation,
    /// The contenders between, each excluded by the next; the last is the one that leads on.
    through: Vec<Kv>,
    /// The edge by which it does; `None`: it is of the same group as the next waiting key.
    edge: Option<(Edge, Key, Revision)>,
}

/// A cycle: the last link leads back to the first one's waiting key.
#[derive(Debug, Clone)]
pub struct Cycle {
    links: Vec<Link>,
}

#[derive(Debug)]
struct Node {
    waiting: Incarnation,
    from: Option<(usize, Link)>,
    hops: usize,
}

impl Search {
    pub fn new(root: &str, prefix: &str, start: Incarnation) -> Self {
        let family = family_of(&start.0).unwrap_or_default();
        Self {
            asked: vec![Read::Family(family.into())],
            root: root.into(),
            prefix: prefix.into(),
            start,
            read: BTreeMap::new(),
        }
    }

    /// What to read next.
    pub fn reads(&self) -> Vec<Op> {
        let op = |read: &Read| {
            let prefix = match read {
                Read::Family(family) => family.clone(),
                Read::Edges(held) => edges_of(&self.root, held),
            };
            transactions::oldest(&prefix, MOST, true)
        };
        self.asked.iter().map(op).collect()
    }

    /// That was answered.
    pub fn answered(&mut self, answer: TxnAnswer) -> Progress {
        let asked = std::mem::take(&mut self.asked);
        let found = answer
            .answers
            .into_iter()
            .map(crate::request::OpAnswer::found);
        self.read.extend(asked.into_iter().zip(found));
        let (missing, cycle) = self.explore();
        if let Some(cycle) = cycle {
            return Progress::Found(cycle);
        }
        self.asked = missing.into_iter().take(READS).collect();
        match self.asked.is_empty() {
            true => Progress::Nothing,
            false => Progress::Reads,
        }
    }

    /// Follows all that has been read: what is missing, and a cycle if there is one.
    fn explore(&self) -> (BTreeSet<Read>, Option<Cycle>) {
        let mut missing = BTreeSet::new();
        let mut nodes = vec![Node {
            waiting: self.start.clone(),
            from: None,
            hops: 0,
        }];
        let mut at = 0;
        while at < nodes.len() {
            steps::step();
            let Some(node) = nodes.get(at) else { break };
            let (waiting, hops) = (node.waiting.clone(), node.hops);
            // The keys of a group lead to each other, and so would never end.
            let by_group = node
                .from
                .as_ref()
                .is_some_and(|(_, link)| link.edge.is_none());
            for link in self.links(&waiting, by_group, &mut missing) {
                let next = &link.1;
                if *next == self.start {
                    return (missing, Some(cycle(&nodes, at, link.0)));
                }
                let known = nodes.iter().any(|node| node.waiting == *next);
                if !known
                    && hops + 1 < HOPS
                    && nodes.len() < NODES
                    && next.0.starts_with(&*self.prefix)
                {
                    nodes.push(Node {
                        waiting: next.clone(),
                        from: Some((at, link.0)),
                        hops: hops + 1,
                    });
                }
            }
            at += 1;
        }
        (missing, None)
    }

    /// The ways on from a waiting key, each with the waiting key it leads to.
    fn links(
        &self,
        waiting: &Incarnation,
        by_group: bool,
        missing: &mut BTreeSet<Read>,
    ) -> Vec<(Link, Incarnation)> {
        let Some(family) = family_of(&waiting.0).map(Key::from) else {
            return Vec::new();
        };
        let read = Read::Family(family.clone());
        let Some(contenders) = self.read.get(&read) else {
            missing.insert(read);
            return Vec::new();
        };
        let is_own = |kv: &&Kv| kv.key == waiting.0.as_bytes() && kv.create_revision == waiting.1;
        let Some(own) = contenders.iter().find(is_own) else {
            return Vec::new(); // it waits no longer
        };
        let contenders: Vec<&Kv> = contenders
            .iter()
            .filter(|kv| crate::ids::contends(&family, &kv.key))
            .collect();
        let mut links = Vec::new();
        // A group waits for its other keys, whether this one is admitted or not.
        let siblings = group_of(&own.value).into_iter();
        for sibling in siblings.filter(|_| !by_group) {
            let link = Link {
                waiting: waiting.clone(),
                through: Vec::new(),
                edge: None,
            };
            links.push((link, (sibling, waiting.1)));
        }
        for through in chains(&contenders, own) {
            let Some(last) = through.last() else { continue };
            let Ok(key) = std::str::from_utf8(&last.key).map(Key::from) else {
                continue;
            };
            let incarnation = (key.clone(), last.create_revision);
            let link = |edge| Link {
                waiting: waiting.clone(),
                through: through.clone(),
                edge,
            };
            for sibling in group_of(&last.value) {
                links.push((link(None), (sibling, last.create_revision)));
            }
            let admitted = !contenders.iter().any(|older| excludes(older, last));
            if !admitted {
                continue;
            }
            let read = Read::Edges(key);
            match self.read.get(&read) {
                None => drop(missing.insert(read)),
                Some(kvs) => links.extend(kvs.iter().filter_map(|kv| {
                    let edge = Edge::parse(&self.root, &incarnation, &kv.key, &kv.value)?;
                    let waits = edge.waits.clone();
                    let key = edge.key(&self.root);
                    Some((link(Some((edge, key, kv.mod_revision))), waits))
                })),
            }
        }
        links
    }
}

/// Whether an older contender keeps a younger one waiting by itself. Of permits that cannot be said: any will do.
fn excludes(older: &Kv, younger: &Kv) -> bool {
    let mode = match Seat::of_key(&younger.key) {
        Seat::Exclusive => Mode::Exclusive,
        Seat::Shared(_) => Mode::Shared,
        Seat::Permit(_) => return false,
    };
    let seat = Seat::of_key(&older.key);
    let permit = matches!(seat, Seat::Permit(_));
    !permit && older.create_revision < younger.create_revision && mode.is_excluded_by(seat)
}

/// Each contender that keeps a waiting key waiting, with those between: each excluded by the next.
fn chains(contenders: &[&Kv], own: &Kv) -> Vec<Vec<Kv>> {
    let mut chains: Vec<Vec<Kv>> = Vec::new();
    let mut seen: BTreeSet<&[u8]> = BTreeSet::new();
    let mut next: VecDeque<(&Kv, Vec<Kv>)> = VecDeque::from([(own, Vec::new())]);
    while let Some((kv, chain)) = next.pop_front() {
        for older in contenders {
            steps::step();
            if excludes(older, kv) && seen.insert(&older.key) {
                let mut chain = chain.clone();
                chain.push((*older).clone());
                chains.push(chain.clone());
                // An exclusive key's chain ends there for exclusive waiters: what excludes it excludes them too.
                next.push_back((older, chain));
            }
        }
    }
    chains
}

fn cycle(nodes: &[Node], mut at: usize, last: Link) -> Cycle {
    let mut links = vec![last];
    while let Some((before, link)) = nodes.get(at).and_then(|node| node.from.clone()) {
        links.push(link);
        at = before;
    }
    links.reverse();
    Cycle { links }
}

impl Cycle {
    /// The edge that leads back to where the search began; `None`: a group's key does.
    pub fn closing_edge(&self) -> Option<&Edge> {
        let (edge, ..) = self.links.last()?.edge.as_ref()?;
        Some(edge)
    }

    /// Whether the waiting key it was found from is the one that was created last.
    pub fn begins_with_youngest(&self) -> bool {
        let created = |link: &Link| link.waiting.1;
        self.links.first().map(created) == self.links.iter().map(created).max()
    }

    /// Whether it passes from one key of a group to another.
    pub fn has_group(&self) -> bool {
        self.links.iter().any(|link| link.edge.is_none())
    }

    /// All keys on it, for checkers.
    pub fn keys(&self) -> impl Iterator<Item = Incarnation> + '_ {
        self.links.iter().flat_map(|link| {
            let text = |kv: &Kv| (String::from_utf8_lossy(&kv.key).into(), kv.create_revision);
            std::iter::once(link.waiting.clone()).chain(link.through.iter().map(text))
        })
    }

    /// The conditions under which it still stands; `None` if they are too many for one transaction.
    pub fn conditions(&self) -> Option<Vec<Compare>> {
        let mut when: Vec<Compare> = Vec::new();
        for (key, created) in self.keys() {
            let compare = Compare::Created(key, created);
            if !when.contains(&compare) {
                when.push(compare);
            }
        }
        let edges = self.links.iter().filter_map(|link| link.edge.as_ref());
        when.extend(edges.map(|(_, key, modified)| Compare::Modified(key.clone(), *modified)));
        (when.len() < transactions::OPERATIONS).then_some(when)
    }

    /// The key that the victim waits for, and each blocker in order.
    pub fn blockers(&self) -> (Option<Key>, Arc<[Blocker]>) {
        let blocker = |link: &Link| {
            let last = link.through.last()?;
            Some(Blocker {
                key: String::from_utf8_lossy(&last.key).into(),
                record: last.value.clone().into(),
            })
        };
        let first = self.links.first().map(|link| link.waiting.0.clone());
        (first, self.links.iter().filter_map(blocker).collect())
    }
}
