//! Transactions: one function for each kind of transaction of the protocol. All are flat (rule P6).

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::ids::{ContenderId, Incarnation, Key, LeaseId, Revision, SessionId, contends, edges_of};
use crate::request::{Compare, Failure, Kv, Op, Refusal, Txn, TxnAnswer};

/// Locks in one bundle: two operations each, and etcd takes 128 a branch unless configured otherwise. A name is at most 1 KiB
/// and a record a few hundred bytes, so a full bundle stays well below the 512 KiB of rule P6.
pub const LOCKS: usize = 64;

/// Keys that a put reads where other contenders are expected. Where there are more, a later read finds out.
const MANY: u32 = 512;

/// Names in one read, two operations each, or keys whose records are written together, after which no other contender joins: the
/// last one may have had 32.
pub const READS: usize = 32;

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

/// Puts all these keys unless the session was barred since (rules P6, P8, P10). A single try puts them only if no key at all is
/// below any of their names, and else reads who owns these (rule P11). `before` has the [`delete`] of other keys that goes first, so
/// that the ranges do not show those.
pub fn put(fence: &Fence, lease: LeaseId, keys: &[Placement], tries: bool, before: Txn) -> Txn {
    let mut txn = before;
    txn.when.extend(unbarred(Some(fence)));
    for Placement { key, family, record, all } in keys {
        txn.then.push(put_one(key, record, lease));
        if tries {
            txn.when.push(Compare::NoneUnder(family.clone()));
            txn.or_else.push(oldest(family, 1, true));
        } else {
            let limit = if *all { MANY } else { 1 };
            txn.then.push(oldest(family, limit, false));
        }
    }
    txn
}

/// What the answer to a put shows of one key.
#[derive(Debug)]
pub struct Placed {
    /// When the key had been created before, if it was there.
    pub previous: Option<Revision>,
    /// The oldest keys of the family, its own included; none, for a single try: no other was there.
    pub found: Vec<Kv>,
}

/// Reads the answer to a put of so many keys that was applied, key by key.
pub fn placed(answer: TxnAnswer, keys: usize) -> impl Iterator<Item = Placed> {
    let count = answer.answers.len();
    let tried = count == keys;
    let of_puts = if tried { keys } else { 2 * keys };
    let of_deletions = count.saturating_sub(of_puts);
    let mut answers = answer.answers.into_iter().skip(of_deletions);
    std::iter::from_fn(move || {
        let previous = answers.next()?.first().map(|kv| kv.create_revision);
        let found = if tried { Vec::new() } else { answers.next()? };
        Some(Placed { previous, found })
    })
}

/// Reads the answer to a single try that was not applied: the first of these families that has an owner, and its key.
pub fn owner<'a>(
    answer: TxnAnswer,
    families: impl Iterator<Item = &'a Key>,
) -> Option<(usize, Kv)> {
    let mut oldest = families.zip(answer.firsts()).enumerate();
    oldest.find_map(|(at, (family, kv))| Some((at, kv.filter(|kv| contends(family, &kv.key))?)))
}

/// Bars the session: what was sent under its earlier revision can no longer apply. Without a revision it creates the session
/// key (rule P10). It may read another key too.
pub fn barrier(
    session: &Key,
    modified: Option<Revision>,
    lease: LeaseId,
    read: Option<&Key>,
) -> Txn {
    let unchanged = match modified {
        Some(modified) => Compare::Modified(session.clone(), modified),
        None => Compare::Absent(session.clone()),
    };
    let put = put_one(session, &Arc::from([]), lease);
    let with = |op: Op| std::iter::once(op).chain(read.map(get)).collect();
    Txn {
        when: vec![unchanged],
        then: with(put),
        or_else: with(Op::Get { key: session.clone(), values: true }),
    }
}

/// What the answer to a barrier shows.
#[derive(Debug)]
pub struct Barred {
    /// The session key's revision now; `None`: it is gone, or another client's.
    pub modified: Option<Revision>,
    /// When the key was created that was read too.
    pub read: Option<Revision>,
}

/// Reads the answer to a barrier under this lease.
pub fn barred(answer: TxnAnswer, lease: LeaseId) -> Barred {
    let (succeeded, revision) = (answer.succeeded, answer.revision);
    let mut answers = answer.firsts();
    let found = answers.next().flatten().filter(|kv| kv.lease == Some(lease));
    Barred {
        modified: match succeeded {
            true => Some(revision),
            false => found.map(|kv| kv.mod_revision),
        },
        read: answers.next().flatten().map(|kv| kv.create_revision),
    }
}

/// Keys of one contender to delete, guarded so that a late delete harms no later incarnation (rule P24).
#[derive(Debug, Clone)]
pub struct Deletion {
    pub contender: ContenderId,
    pub session: SessionId,
    pub keys: Vec<Key>,
    /// `None`: it is not known whether they are there, only that no put of them can apply any more (rules P10, P34).
    pub created: Option<Revision>,
    /// They have edges, or may have, which go with them (rule P38).
    pub edges: bool,
}

/// Deletes these keys if all of them are there, and none of which that is not known; else reads them. `root`: what
/// the keys of edges begin with.
pub fn delete(root: &str, deletions: &[Deletion]) -> Txn {
    let mut txn = Txn::default();
    for deletion in deletions {
        for key in &deletion.keys {
            match deletion.created {
                Some(created) => {
                    txn.when.push(Compare::Created(key.clone(), created));
                    txn.then.push(Op::Delete(key.clone()));
                }
                None => txn.when.push(Compare::Absent(key.clone())),
            }
            // It makes a write of what else might only read, which no member that lags can answer (rule P20).
            if deletion.edges || deletion.created.is_none() {
                txn.then.push(Op::DeleteUnder(edges_of(root, key)));
            }
            txn.or_else.push(get(key));
        }
    }
    txn
}

/// Reads the answer to a delete, and leaves the keys that are still there. All keys of a contender have one create revision.
pub fn deleted(deletions: &mut [Deletion], answer: TxnAnswer) {
    let succeeded = answer.succeeded;
    let mut found = answer.firsts();
    for Deletion { keys, created, .. } in deletions {
        keys.retain(|_| match found.next().flatten() {
            Some(kv) if !succeeded => {
                *created.get_or_insert(kv.create_revision) == kv.create_revision
            }
            _ => false,
        });
    }
}

/// A key whose record is to be written again.
#[derive(Debug)]
pub struct Description {
    pub contender: ContenderId,
    pub key: Key,
    /// The key's mod revision: so its incarnation and its lease are ours.
    pub modified: Revision,
    pub lease: LeaseId,
    pub record: Arc<[u8]>,
}

/// Writes the records of these keys if all are as they were last written here, else reads them.
pub fn describe(keys: &[Description]) -> Txn {
    let unchanged = |it: &Description| Compare::Modified(it.key.clone(), it.modified);
    Txn {
        when: keys.iter().map(unchanged).collect(),
        then: keys.iter().map(|it| put_one(&it.key, &it.record, it.lease)).collect(),
        or_else: keys.iter().map(|it| get(&it.key)).collect(),
    }
}

/// Reads the answer to a [`describe`] that wrote nothing: the contenders with a key that is not as it was written here.
pub fn changed(keys: &[Description], answer: TxnAnswer) -> BTreeSet<ContenderId> {
    let found = answer.firsts();
    let modified = found.map(|kv| kv.map(|kv| kv.mod_revision));
    let changed = keys.iter().zip(modified);
    let changed = changed.filter(|(it, modified)| *modified != Some(it.modified));
    changed.map(|(it, _)| it.contender).collect()
}

/// Puts these keys under another lease if all of them are there, else reads them (rule P39).
pub fn retain(keys: &[(Key, Revision)], lease: LeaseId, record: &Arc<[u8]>) -> Txn {
    let puts = keys.iter().map(|(key, _)| put_one(key, record, lease));
    Txn {
        when: keys.iter().map(exists).collect(),
        then: puts.collect(),
        or_else: keys.iter().map(|(key, _)| get(key)).collect(),
    }
}

/// Reads all keys that begin with this, or only those up to that create revision, with their values if asked.
pub fn read_under(prefix: Key, up_to: Option<Revision>, values: bool) -> Op {
    Op::Range { prefix, limit: None, values, up_to }
}

/// A transaction without conditions.
pub fn reads(ops: Vec<Op>) -> Txn {
    Txn { then: ops, ..Txn::default() }
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
            let found = answer.firsts().next().flatten();
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
    let read = fence.map(|fence| get(&fence.key));
    Txn {
        when: unbarred(fence).into_iter().chain(conditions).collect(),
        then,
        or_else: read.into_iter().collect(),
    }
}

fn unbarred(fence: Option<&Fence>) -> Option<Compare> {
    fence.map(|fence| Compare::Modified(fence.key.clone(), fence.modified))
}

fn exists((key, created): &Incarnation) -> Compare {
    Compare::Created(key.clone(), *created)
}

fn put_one(key: &Key, value: &Arc<[u8]>, lease: LeaseId) -> Op {
    Op::Put { key: key.clone(), value: value.clone(), lease }
}

/// Reads one key, without its value and its lease.
pub fn get(key: &Key) -> Op {
    Op::Get { key: key.clone(), values: false }
}

/// Reads the oldest keys that begin with this.
pub fn oldest(family: &Key, limit: u32, values: bool) -> Op {
    Op::Range { prefix: family.clone(), limit: Some(limit), values, up_to: None }
}
