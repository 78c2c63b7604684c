//! Transactions: one function for each kind of transaction of the protocol. All are flat (rule P6).

use std::sync::Arc;

use crate::ids::{Key, LeaseId, Revision};
use crate::mistakes::{Mistake, mistake};
use crate::request::{Compare, Op, Order, Txn};

/// Locks in one bundle: two operations each, and etcd takes 128 a branch unless configured otherwise. A name is at most 1 KiB
/// and a record a few hundred bytes, so a full bundle stays well below the 512 KiB of rule P6.
pub const LOCKS: usize = 64;

/// Keys that a put reads where other contenders are expected. Where there are more, a later read finds out.
const MANY: u32 = 512;

/// Names in one read: two operations each.
pub const READS: usize = 60;

/// Ambiguous keys in one barrier: one operation each, beside the session key's.
pub const AMBIGUOUS: usize = 100;

/// Conditions, or operations, in one transaction.
pub const OPERATIONS: usize = 128;

/// A session key in the state a transaction relies on: the session was not barred since (rule P10).
#[derive(Debug, Clone)]
pub struct Fence {
    pub key: Key,
    pub modified: Revision,
}

impl Fence {
    fn holds(&self) -> Option<Compare> {
        (!mistake(Mistake::NoFence)).then(|| Compare::Modified(self.key.clone(), self.modified))
    }

    fn read(&self) -> Op {
        Op::Get(self.key.clone())
    }
}

/// A key to put below a name.
#[derive(Debug)]
pub struct Placement {
    pub key: Key,
    pub family: Key,
    pub record: Arc<[u8]>,
    /// Read all contenders of the name (up to [`MANY`]), not only the oldest one: others are expected.
    pub all: bool,
}

/// Puts all these keys unless the session was barred since (rules P6, P8, P10).
pub fn put(fence: &Fence, lease: LeaseId, keys: &[Placement]) -> Txn {
    let ops = keys.iter().flat_map(|placement| {
        let limit = if placement.all { MANY } else { 1 };
        [
            put_one(&placement.key, &placement.record, lease),
            oldest(&placement.family, limit, false),
        ]
    });
    Txn {
        when: fence.holds().into_iter().collect(),
        then: ops.collect(),
        or_else: vec![fence.read()],
    }
}

/// Puts these keys only if no key at all is below any of their names (rule P11).
pub fn put_if_none(fence: &Fence, lease: LeaseId, keys: &[Placement]) -> Txn {
    let none = keys
        .iter()
        .map(|placement| Compare::NoneUnder(placement.family.clone()));
    let puts = keys
        .iter()
        .map(|placement| put_one(&placement.key, &placement.record, lease));
    let owners = keys
        .iter()
        .map(|placement| oldest(&placement.family, 1, true));
    Txn {
        when: fence.holds().into_iter().chain(none).collect(),
        then: puts.collect(),
        or_else: std::iter::once(fence.read()).chain(owners).collect(),
    }
}

/// Bars the session: what was sent under its earlier revision can no longer apply, and the answer tells which of these keys
/// exist. Without a revision it creates the session key (rule P10).
pub fn barrier(
    session: &Key,
    modified: Option<Revision>,
    lease: LeaseId,
    keys: impl Iterator<Item = Key>,
) -> Txn {
    let reads: Vec<Op> = keys.map(Op::Get).collect();
    let unchanged = match modified {
        Some(modified) => Compare::Modified(session.clone(), modified),
        None => Compare::Absent(session.clone()),
    };
    let put = put_one(session, &Arc::from([]), lease);
    let get = Op::Get(session.clone());
    Txn {
        when: vec![unchanged],
        then: std::iter::once(put).chain(reads.iter().cloned()).collect(),
        or_else: std::iter::once(get).chain(reads).collect(),
    }
}

/// A key to delete, and what its edges begin with, if it has any (rule P38).
#[derive(Debug, Clone)]
pub struct Removal {
    pub key: Key,
    pub created: Revision,
    pub edges: Option<Key>,
}

/// Deletes these keys if all of them are there, else reads them (rule P24).
pub fn delete(keys: &[Removal]) -> Txn {
    let then = keys.iter().flat_map(|removal| {
        let delete = Op::Delete(removal.key.clone());
        let edges = removal.edges.clone().map(Op::DeleteUnder);
        std::iter::once(delete).chain(edges)
    });
    Txn {
        when: keys
            .iter()
            .filter(|_| !mistake(Mistake::DeleteByNameOnly))
            .map(|removal| Compare::Created(removal.key.clone(), removal.created))
            .collect(),
        then: then.collect(),
        or_else: keys.iter().map(|removal| get(&removal.key)).collect(),
    }
}

/// Puts these keys under another lease if all of them are there, else reads them (rule P39).
pub fn retain(keys: &[(Key, Revision)], lease: LeaseId, record: &Arc<[u8]>) -> Txn {
    Txn {
        when: created(keys),
        then: keys
            .iter()
            .map(|(key, _)| put_one(key, record, lease))
            .collect(),
        or_else: keys.iter().map(|(key, _)| get(key)).collect(),
    }
}

/// Reads the contenders older than a waiting key, itself included, and with them the oldest one's record if that is wanted.
/// With `deep`, all values: the oldest key may be one that does not contend (rule P2).
pub fn read_before(family: &Key, created: Revision, deep: bool, owner: bool) -> Vec<Op> {
    let mut ops = vec![Op::Range {
        prefix: family.clone(),
        limit: None,
        values: deep,
        order: Order::OldestFirst,
        older_than: Some(created.next()),
    }];
    if owner && !deep {
        ops.push(oldest(family, 1, true));
    }
    ops
}

/// Reads a held key, and the youngest keys of its family: whether a contender waits behind it (rule P23).
pub fn read_behind(key: &Key, family: &Key, all: bool) -> [Op; 2] {
    let range = Op::Range {
        prefix: family.clone(),
        limit: (!all).then_some(1),
        values: false,
        order: Order::NewestFirst,
        older_than: None,
    };
    [get(key), range]
}

/// Reads all keys that begin with this, with their values: at most so many.
pub fn read_all(prefix: Key, limit: u32, older_than: Option<Revision>) -> Op {
    Op::Range {
        prefix,
        limit: Some(limit),
        values: true,
        order: Order::OldestFirst,
        older_than,
    }
}

/// A transaction without conditions.
pub fn reads(ops: Vec<Op>) -> Txn {
    Txn {
        then: ops,
        ..Txn::default()
    }
}

/// Puts these edges while the keys they lead from and to are there, and the session was not barred since (rule P38). Without a
/// fence, because the session key is gone, the keys alone must do.
pub fn publish(
    fence: Option<&Fence>,
    lease: LeaseId,
    ends: &[(Key, Revision)],
    edges: &[(Key, Arc<[u8]>)],
) -> Txn {
    let puts = edges.iter().map(|(key, value)| put_one(key, value, lease));
    Txn {
        when: fenced(fence, created(ends)),
        then: puts.collect(),
        or_else: fence.map(Fence::read).into_iter().collect(),
    }
}

/// Deletes the edges of one call if the whole cycle still stands: its success is the proof that it did (rule P38).
pub fn abort(fence: Option<&Fence>, cycle: Vec<Compare>, edges: Vec<Key>) -> Txn {
    Txn {
        when: fenced(fence, cycle),
        then: edges.into_iter().map(Op::Delete).collect(),
        or_else: fence.map(Fence::read).into_iter().collect(),
    }
}

fn fenced(fence: Option<&Fence>, conditions: Vec<Compare>) -> Vec<Compare> {
    fence
        .and_then(Fence::holds)
        .into_iter()
        .chain(conditions)
        .collect()
}

fn created(keys: &[(Key, Revision)]) -> Vec<Compare> {
    let created = |(key, created): &(Key, Revision)| Compare::Created(key.clone(), *created);
    keys.iter().map(created).collect()
}

fn put_one(key: &Key, value: &Arc<[u8]>, lease: LeaseId) -> Op {
    Op::Put {
        key: key.clone(),
        value: value.clone(),
        lease,
    }
}

fn get(key: &Key) -> Op {
    Op::Get(key.clone())
}

fn oldest(family: &Key, limit: u32, values: bool) -> Op {
    Op::Range {
        prefix: family.clone(),
        limit: Some(limit),
        values,
        order: Order::OldestFirst,
        older_than: None,
    }
}
