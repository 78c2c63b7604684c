//! Transactions: one function for each kind of transaction of the protocol. All are flat (rule P6).

use std::sync::Arc;

use crate::ids::{ContenderId, Incarnation, Key, LeaseId, Revision, SessionId, edges_of};
use crate::mistakes::{Mistake, mistake};
use crate::request::{Compare, Failure, Op, OpAnswer, Refusal, Txn, TxnAnswer};

/// Locks in one bundle: two operations each, and etcd takes 128 a branch unless configured otherwise. A name is at most 1 KiB
/// and a record a few hundred bytes, so a full bundle stays well below the 512 KiB of rule P6.
pub const LOCKS: usize = 64;

/// Keys that a put reads where other contenders are expected. Where there are more, a later read finds out.
const MANY: u32 = 512;

/// Names in one read, two operations each, after which no other contender joins it: the last one may have had 32.
pub const READS: usize = 32;

/// Ambiguous keys in one barrier: one operation each, beside the session key's.
pub const AMBIGUOUS: usize = 100;

/// A session key in the state a transaction relies on: the session was not barred since (rule P10).
#[derive(Debug, Clone)]
pub struct Fence {
    pub key: Key,
    pub modified: Revision,
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
    fenced(Some(fence), Vec::new(), ops.collect())
}

/// Puts these keys only if no key at all is below any of their names (rule P11).
pub fn put_if_none(fence: &Fence, lease: LeaseId, keys: &[Placement]) -> Txn {
    let families = || keys.iter().map(|placement| &placement.family);
    let none = families().map(|family| Compare::NoneUnder(family.clone()));
    let puts = keys
        .iter()
        .map(|placement| put_one(&placement.key, &placement.record, lease));
    let mut txn = fenced(Some(fence), none.collect(), puts.collect());
    txn.or_else
        .extend(families().map(|family| oldest(family, 1, true)));
    txn
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

/// The keys of one contender, to be deleted (rule P24).
#[derive(Debug, Clone)]
pub struct Deletion {
    pub contender: ContenderId,
    pub session: SessionId,
    pub keys: Vec<Key>,
    /// Guards the delete, so that a late one harms no later incarnation.
    pub created: Revision,
    /// Its keys have edges, or may have, which go with them (rule P38).
    pub edges: bool,
}

/// Deletes these keys if all of them are there, else reads them (rule P24). `root`: what the keys of edges begin with.
pub fn delete(root: &str, deletions: &[Deletion]) -> Txn {
    let mut txn = Txn::default();
    for deletion in deletions {
        for key in &deletion.keys {
            if !mistake(Mistake::DeleteByNameOnly) {
                let unchanged = Compare::Created(key.clone(), deletion.created);
                txn.when.push(unchanged);
            }
            txn.then.push(Op::Delete(key.clone()));
            if deletion.edges {
                let edges = edges_of(root, key);
                txn.then.push(Op::DeleteUnder(edges));
            }
            txn.or_else.push(Op::Get(key.clone()));
        }
    }
    txn
}

/// Puts these keys under another lease if all of them are there, else reads them (rule P39).
pub fn retain(keys: &[(Key, Revision)], lease: LeaseId, record: &Arc<[u8]>) -> Txn {
    let puts = keys.iter().map(|(key, _)| put_one(key, record, lease));
    Txn {
        when: keys.iter().map(exists).collect(),
        then: puts.collect(),
        or_else: keys.iter().map(|(key, _)| Op::Get(key.clone())).collect(),
    }
}

/// Reads all keys that begin with this, or only those up to that create revision, with their values if asked.
pub fn read_under(prefix: Key, up_to: Option<Revision>, values: bool) -> Op {
    Op::Range {
        prefix,
        limit: None,
        values,
        up_to,
    }
}

/// A transaction without conditions.
pub fn reads(ops: Vec<Op>) -> Txn {
    Txn {
        then: ops,
        ..Txn::default()
    }
}

/// Puts an edge while the keys it leads from and to are there, and the session was not barred since (rule P38). Without a
/// fence, because the session key is gone, the keys alone must do.
pub fn publish(
    fence: Option<&Fence>,
    lease: LeaseId,
    ends: [&Incarnation; 2],
    edge: (Key, Arc<[u8]>),
) -> Txn {
    let put = put_one(&edge.0, &edge.1, lease);
    fenced(fence, ends.map(exists).into(), vec![put])
}

/// Deletes the edges of one call if the whole cycle still stands: its success is the proof that it did (rule P38).
pub fn abort(fence: Option<&Fence>, cycle: Vec<Compare>, edges: Vec<Key>) -> Txn {
    let deletes = edges.into_iter().map(Op::Delete);
    fenced(fence, cycle, deletes.collect())
}

/// How a write of edges ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Applied,
    /// Nothing was applied, and nothing will be.
    Refused,
    /// It may have been applied, or the session key is not as it was known: a barrier is due.
    Unknown,
}

/// Reads the answer to [`publish`] or [`abort`].
pub fn written(fence: Option<&Fence>, result: Result<TxnAnswer, Failure>) -> Outcome {
    match result {
        Ok(answer) if answer.succeeded => Outcome::Applied,
        Ok(answer) => {
            let found = answer.answers.into_iter().next().and_then(OpAnswer::first);
            let modified = found.map(|kv| kv.mod_revision);
            match fence {
                Some(fence) if modified != Some(fence.modified) => Outcome::Unknown,
                _ => Outcome::Refused,
            }
        }
        Err(Failure::Unavailable(_)) => Outcome::Refused,
        Err(Failure::Refused(kind, _)) if kind != Refusal::NoSpace => Outcome::Refused,
        Err(_) => Outcome::Unknown,
    }
}

/// Unless these conditions hold, and the session was not barred since, reads the session key (rule P10).
fn fenced(fence: Option<&Fence>, conditions: Vec<Compare>, then: Vec<Op>) -> Txn {
    let unbarred = fence.filter(|_| !mistake(Mistake::NoFence));
    let unbarred = unbarred.map(|fence| Compare::Modified(fence.key.clone(), fence.modified));
    let read = fence.map(|fence| Op::Get(fence.key.clone()));
    Txn {
        when: unbarred.into_iter().chain(conditions).collect(),
        then,
        or_else: read.into_iter().collect(),
    }
}

fn exists((key, created): &Incarnation) -> Compare {
    Compare::Created(key.clone(), *created)
}

fn put_one(key: &Key, value: &Arc<[u8]>, lease: LeaseId) -> Op {
    Op::Put {
        key: key.clone(),
        value: value.clone(),
        lease,
    }
}

/// Reads the oldest keys that begin with this.
pub fn oldest(family: &Key, limit: u32, values: bool) -> Op {
    Op::Range {
        prefix: family.clone(),
        limit: Some(limit),
        values,
        up_to: None,
    }
}
