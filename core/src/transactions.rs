//! Transactions: one function for each kind of transaction of the protocol. All are flat (rule P6).

use std::sync::Arc;

use crate::ids::{CallId, ContenderId, Key, LeaseId, Revision, SessionId, contends};
use crate::request::{Compare, Kv, Op, Txn, TxnAnswer};

/// Locks in one bundle: two operations each, and etcd takes 128 a branch unless configured otherwise. A name is at most 1 KiB
/// and a record a few hundred bytes, so a full bundle stays well below the 512 KiB of rule P6.
pub const LOCKS: usize = 64;

/// Keys that a put reads where other contenders are expected. Where there are more, a later read finds out.
const MANY: u32 = 256;

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
    txn.when.push(Compare::Modified(fence.key.clone(), fence.modified));
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
    counts: impl Fn(&Kv) -> bool,
) -> Option<(usize, Kv)> {
    let mut oldest = families.zip(answer.firsts()).enumerate();
    let owns = |family: &Key, kv: &Kv| contends(family, &kv.key) && counts(kv);
    oldest.find_map(|(at, (family, kv))| Some((at, kv.filter(|kv| owns(family, kv))?)))
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

/// A contender's key to delete, guarded so that a late delete harms no later incarnation (rule P24).
#[derive(Debug, Clone)]
pub struct Deletion {
    pub contender: ContenderId,
    pub session: SessionId,
    pub key: Key,
    /// `None`: it is not known whether it is there, only that no put of it can apply any more (rules P10, P34).
    pub created: Option<Revision>,
}

/// Deletes these keys if all of them are there, and none of which that is not known; else reads them.
pub fn delete(deletions: &[Deletion]) -> Txn {
    let mut txn = Txn::default();
    for Deletion { key, created, .. } in deletions {
        match created {
            Some(created) => txn.when.push(Compare::Created(key.clone(), *created)),
            None => txn.when.push(Compare::Absent(key.clone())),
        }
        // Of a key that is not there it makes a write too, which no member that lags can answer (rule P20).
        txn.then.push(Op::Delete(key.clone()));
        txn.or_else.push(get(key));
    }
    txn
}

/// Reads the response to a [`delete`]: takes out the keys that are gone.
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

/// A key whose record is to be written again.
#[derive(Debug)]
pub struct Description {
    pub contender: ContenderId,
    /// The call that it is about.
    pub call: CallId,
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

/// Reads the response to a [`describe`] that wrote nothing: whether each key is as it was last written here.
pub fn unchanged(keys: &[Description], answer: TxnAnswer) -> Vec<bool> {
    let found = answer.firsts().zip(keys);
    found.map(|(kv, it)| kv.is_some_and(|kv| kv.mod_revision == it.modified)).collect()
}

/// Reads all keys that begin with this, or only those up to that create revision, with their values if asked.
pub fn read_under(prefix: Key, up_to: Option<Revision>, values: bool) -> Op {
    Op::Range { prefix, limit: None, values, up_to }
}

/// A transaction without conditions.
pub fn reads(ops: Vec<Op>) -> Txn {
    Txn { then: ops, ..Txn::default() }
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
