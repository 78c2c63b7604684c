//! Transactions: one function for each kind of transaction in the protocol. All are flat (rule P6).

use std::sync::Arc;

use crate::ids::{ContenderId, Key, LeaseId, Revision, SessionId};
use crate::request::{Compare, Kv, Op, Txn, TxnAnswer};

/// The most locks in a transaction. Each takes two operations, and etcd's default limit is 128 per branch. A name has at most 1
/// KiB and a record a few hundred bytes, so a full transaction stays well below etcd's limit of 1.5 MiB.
pub const LOCKS: usize = 64;

/// The most keys that a put reads where others are expected. If there are more, a later read returns them.
const MANY: u32 = 256;

/// The most contenders in a read, two operations each, or records in a write.
pub const READS: usize = 32;

/// A key to put below a name.
#[derive(Debug)]
pub struct Placement {
    pub key: Key,
    pub lease: LeaseId,
    pub family: Key,
    pub record: Arc<[u8]>,
    /// True to read up to [`MANY`] contenders of the name, because others are expected; false to read only the oldest.
    pub all: bool,
}

/// Puts all these keys, unless one of their sessions was barred meanwhile. `fences` are their session keys with the expected mod
/// revisions; if nothing is put, they are read (rules P6, P8, P10). A single try puts its keys only if no key exists below any of
/// the names. Otherwise it also reads who owns them (rule P11). `txn` already contains the [`delete`] of other keys. That runs
/// first, so the ranges do not return those. If it fails with deletions, nothing is read: each kind is sent again alone (rule P9).
pub fn put(fences: Vec<(Key, Revision)>, keys: &[Placement], tries: bool, mut txn: Txn) -> Txn {
    let deletes = !txn.then.is_empty();
    for (session, modified) in fences {
        txn.or_else.push(get(&session));
        txn.when.push(Compare::Modified(session, modified));
    }
    for Placement { key, lease, family, record, all } in keys {
        txn.then.push(Op::Put { key: key.clone(), value: record.clone(), lease: *lease });
        if tries {
            txn.when.push(Compare::NoneUnder(family.clone()));
            txn.or_else.push(oldest(family, 1, true));
        } else {
            let limit = if *all { MANY } else { 1 };
            txn.then.push(oldest(family, limit, false));
        }
    }
    if deletes {
        txn.or_else.clear();
    }
    txn
}

/// Parses the response to a put that was applied. Returns the oldest keys of each family, the new one included. For a single try
/// it returns none, because no others exist.
pub fn placed(answer: TxnAnswer, keys: usize) -> impl Iterator<Item = Vec<Kv>> {
    let count = answer.answers.len();
    let tried = count == keys;
    let of_puts = if tried { keys } else { 2 * keys };
    let mut answers = answer.answers.into_iter().skip(count.saturating_sub(of_puts));
    std::iter::from_fn(move || {
        let _put = answers.next()?;
        if tried { Some(Vec::new()) } else { answers.next() }
    })
}

/// Bars the session: puts that compare an earlier revision of its key can no longer apply. With `None` it creates the session key
/// (rule P10). It may also read another key.
pub fn barrier(key: &Key, modified: Option<Revision>, lease: LeaseId, read: Option<&Key>) -> Txn {
    let unchanged = match modified {
        Some(modified) => Compare::Modified(key.clone(), modified),
        None => Compare::Absent(key.clone()),
    };
    let with = |op: Op| std::iter::once(op).chain(read.map(get)).collect();
    Txn {
        when: vec![unchanged],
        then: with(Op::Put { key: key.clone(), value: Arc::from([]), lease }),
        or_else: with(Op::Get { key: key.clone(), values: true }),
    }
}

/// Parses the response to a barrier: the mod revision of the session key under this lease, and the other key's create revision.
pub fn barred(answer: TxnAnswer, lease: LeaseId) -> (Option<Revision>, Option<Revision>) {
    let barrier = answer.succeeded.then_some(answer.revision);
    let mut answers = answer.firsts();
    let found = answers.next().flatten().filter(|kv| kv.lease == Some(lease));
    let read = answers.next().flatten().map(|kv| kv.create_revision);
    (barrier.or(found.map(|kv| kv.mod_revision)), read)
}

/// A deletion of a contender's key. Its guard keeps a late delete from removing a later incarnation (rule P24).
#[derive(Debug, Clone)]
pub struct Deletion {
    pub contender: ContenderId,
    pub session: SessionId,
    pub key: Key,
    /// `None`: it is not known whether the key exists, but no put of it can apply any more (rules P10, P34).
    pub created: Option<Revision>,
}

/// Deletes these keys if all known incarnations exist and the other keys do not. Otherwise reads them.
pub fn delete(deletions: &[Deletion]) -> Txn {
    let mut txn = Txn::default();
    for Deletion { key, created, .. } in deletions {
        match created {
            Some(created) => txn.when.push(Compare::Created(key.clone(), *created)),
            None => txn.when.push(Compare::Absent(key.clone())),
        }
        // The delete of a missing key turns the transaction into a write, to which no lagging member can respond (rule P20).
        txn.then.push(Op::Delete(key.clone()));
        txn.or_else.push(get(key));
    }
    txn
}

/// Parses the response to a [`delete`]. Removes and returns the deletions whose keys are gone.
pub fn deleted(deletions: &mut Vec<Deletion>, answer: TxnAnswer) -> Vec<Deletion> {
    let succeeded = answer.succeeded;
    let mut found = answer.firsts();
    let is_gone = |deletion: &mut Deletion| match found.next().flatten() {
        Some(kv) if !succeeded => {
            *deletion.created.get_or_insert(kv.create_revision) != kv.create_revision
        }
        _ => true,
    };
    deletions.extract_if(.., is_gone).collect()
}

/// A held key whose record is to be written again.
#[derive(Debug)]
pub struct Description {
    pub contender: ContenderId,
    pub key: Key,
    /// The mod revision of this process's last write. As long as it matches, the key's incarnation and lease are ours.
    pub modified: Revision,
    pub lease: LeaseId,
    pub record: Arc<[u8]>,
}

/// Writes the records of these keys if none was modified since this process's last write. Otherwise reads the keys.
pub fn describe(keys: &[Description]) -> Txn {
    let mut txn = Txn::default();
    for Description { key, modified, lease, record, .. } in keys {
        txn.when.push(Compare::Modified(key.clone(), *modified));
        txn.then.push(Op::Put { key: key.clone(), value: record.clone(), lease: *lease });
        txn.or_else.push(get(key));
    }
    txn
}

/// Parses the response to a [`describe`], if there is one. Returns each key's mod revision, if this process's write set it.
pub fn described(keys: &[Description], answer: Option<TxnAnswer>) -> Vec<Option<Revision>> {
    let written = answer.as_ref().filter(|it| it.succeeded).map(|it| it.revision);
    let mut found = answer.into_iter().flat_map(TxnAnswer::firsts);
    let modified = keys.iter().map(|it| {
        let unchanged = found.next().flatten().filter(|kv| kv.mod_revision == it.modified);
        written.or(unchanged.map(|kv| kv.mod_revision))
    });
    modified.collect()
}

fn get(key: &Key) -> Op {
    Op::Get { key: key.clone(), values: false }
}

/// Reads the oldest keys with this prefix.
pub fn oldest(family: &Key, limit: u32, values: bool) -> Op {
    Op::Range { prefix: family.clone(), limit: Some(limit), values, up_to: None }
}
