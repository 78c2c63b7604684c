//! The search for a circle among the keys of all processes: which waiting key waits for which older ones, and what their
//! holders wait for in turn (rule P38). Pure: it says what to read, and is told what was found.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::core::mode::Seat;
use crate::core::record::{self, Incarnation};
use crate::core::request::{Key, Kv, Op, Order, Revision, Txn, TxnAnswer};
use crate::core::{Blocker, bundle};

/// How far a search goes: longer chains wait until their time is over.
const HOPS: usize = 16;
const NODES: usize = 64;

/// Waiting keys a read: two operations each.
const READS: usize = 32;

/// Contenders of one name that are looked at, the oldest first.
const CONTENDERS: i64 = 64;

/// A search under way.
#[derive(Debug)]
pub(crate) struct Search {
    /// What all keys begin with: what is elsewhere is not followed, and may not be ours to read.
    prefix: Key,
    /// Where a circle closes: keys its seeker holds, or the other keys of its group.
    ends: BTreeSet<Incarnation>,
    /// Waiting keys, as they were come upon.
    nodes: Vec<Node>,
    /// How many of them are read, and how many are being read.
    read: usize,
    reading: usize,
}

/// A waiting key, and how the search came to it.
#[derive(Debug)]
struct Node {
    waiting: Incarnation,
    from: Option<Step>,
    hops: usize,
}

/// From a waiting key by way of one it waits for.
#[derive(Debug, Clone)]
struct Step {
    node: usize,
    before: Before,
    sibling: bool,
}

/// A key that others wait for, as it was read.
#[derive(Debug, Clone)]
pub(crate) struct Before {
    pub(crate) key: Key,
    pub(crate) created: Revision,
    pub(crate) modified: Revision,
    value: Arc<[u8]>,
}

impl Before {
    /// What it says its holders' tasks depend on.
    pub(crate) fn waits(&self) -> Vec<Incarnation> {
        record::told(&self.value).waits
    }

    /// And what has to be there for that.
    pub(crate) fn provided(&self) -> Vec<Incarnation> {
        record::told(&self.value).provided
    }
}

/// A circle, as it was read: it may have dissolved since.
#[derive(Debug)]
pub(crate) struct Circle {
    pub(crate) links: Vec<Link>,
}

/// A waiting key, the key it waits for, and whether what comes next is of the same group.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) waiting: Incarnation,
    pub(crate) before: Before,
    pub(crate) sibling: bool,
}

impl Search {
    pub(crate) fn new(
        prefix: Key,
        starts: impl IntoIterator<Item = Incarnation>,
        ends: BTreeSet<Incarnation>,
    ) -> Self {
        let start = |waiting| Node {
            waiting,
            from: None,
            hops: 0,
        };
        Self {
            prefix,
            ends,
            nodes: starts.into_iter().take(NODES).map(start).collect(),
            read: 0,
            reading: 0,
        }
    }

    /// What to read next; `None`: there is no circle, or it is too far.
    pub(crate) fn next(&mut self) -> Option<Txn> {
        self.reading = (self.nodes.len() - self.read).min(READS);
        let nodes = self.nodes.iter().skip(self.read).take(self.reading);
        let then: Vec<Op> = nodes
            .flat_map(|node| {
                let (key, created) = &node.waiting;
                [
                    Op::Get { key: key.clone() },
                    Op::Range {
                        prefix: family(key).into(),
                        limit: CONTENDERS,
                        values: true,
                        order: Order::OldestFirst,
                        older_than: Some(*created),
                    },
                ]
            })
            .collect();
        (!then.is_empty()).then(|| Txn {
            then,
            ..Txn::default()
        })
    }

    /// What [`next`](Self::next) asked for was answered; the first circle that shows, if any.
    pub(crate) fn found(&mut self, answer: TxnAnswer) -> Option<Circle> {
        let mut answers = answer.answers.into_iter();
        for _ in 0..std::mem::take(&mut self.reading) {
            let at = self.read;
            self.read += 1;
            let (Some(own), Some(older)) = (answers.next(), answers.next()) else {
                return None;
            };
            let created = self.nodes.get(at).map(|node| node.waiting.1);
            if bundle::first(own).map(|kv| kv.create_revision) != created {
                continue; // it waits no longer
            }
            for kv in bundle::found(older) {
                if let Some(circle) = self.step(at, kv) {
                    return Some(circle);
                }
            }
        }
        None
    }

    /// From the waiting key `at` to one that is older, and on to what that one's holder waits for.
    fn step(&mut self, at: usize, kv: Kv) -> Option<Circle> {
        let node = self.nodes.get(at)?;
        let key: Key = String::from_utf8(kv.key).ok()?.into();
        if family(&key) != family(&node.waiting.0) || kv.create_revision >= node.waiting.1 {
            return None; // deeper keys do not contend (rule P2)
        }
        let (waits, stands) = (
            Seat::of_key(node.waiting.0.as_bytes()),
            Seat::of_key(key.as_bytes()),
        );
        let permits = [waits, stands]
            .iter()
            .any(|seat| matches!(seat, Seat::Permit { .. }));
        if permits || !waits.mode().is_excluded_by(stands) {
            return None; // whoever waits for a permit waits for none in particular
        }
        let hops = node.hops + 1;
        let told = record::told(&kv.value);
        let before = Before {
            key: key.clone(),
            created: kv.create_revision,
            modified: kv.mod_revision,
            value: kv.value.into(),
        };
        if self.ends.contains(&(key, before.created)) {
            return Some(self.circle(at, before));
        }
        let siblings = told.group.into_iter().map(|key| (key, before.created));
        // What excludes us may itself wait, for what does not (rule P37): if it does, it is older still.
        let itself = (waits == Seat::Shared).then(|| (before.key.clone(), before.created));
        let next = told.waits.into_iter().chain(itself);
        let next = next.map(|waiting| (waiting, false));
        for (waiting, sibling) in next.chain(siblings.map(|waiting| (waiting, true))) {
            let known = self.nodes.iter().any(|node| node.waiting == waiting);
            let far = hops >= HOPS || self.nodes.len() >= NODES;
            if known
                || far
                || !waiting.0.starts_with(&*self.prefix)
                || family(&waiting.0).is_empty()
            {
                continue;
            }
            self.nodes.push(Node {
                waiting,
                from: Some(Step {
                    node: at,
                    before: before.clone(),
                    sibling,
                }),
                hops,
            });
        }
        None
    }

    fn circle(&self, mut at: usize, before: Before) -> Circle {
        let mut step = Step {
            node: at,
            before,
            sibling: false,
        };
        let mut links = Vec::new();
        while let Some(node) = self.nodes.get(at) {
            links.push(Link {
                waiting: node.waiting.clone(),
                before: step.before,
                sibling: step.sibling,
            });
            let Some(from) = node.from.clone() else {
                break;
            };
            at = from.node;
            step = from;
        }
        links.reverse();
        Circle { links }
    }
}

impl Circle {
    /// Whether the seeker's way into the circle is by the last of its waiting keys that was put.
    pub(crate) fn begins_with_youngest(&self) -> bool {
        let created = |link: &Link| link.waiting.1;
        self.links.first().map(created) == self.links.iter().map(created).max()
    }

    /// Whether it passes from one key of a group to another.
    pub(crate) fn has_group(&self) -> bool {
        self.links.iter().any(|link| link.sibling)
    }

    /// Who blocks whom, in order.
    pub(crate) fn blockers(&self) -> Arc<[Blocker]> {
        let blockers = self.links.iter().map(|link| Blocker {
            key: link.before.key.clone(),
            record: link.before.value.clone(),
        });
        blockers.collect()
    }
}

/// `<prefix><name>/`: what all contenders of a key begin with; empty, if it is none.
fn family(key: &str) -> &str {
    key.rfind('/').map_or("", |at| key.get(..=at).unwrap_or(""))
}
