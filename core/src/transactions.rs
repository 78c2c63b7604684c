//! Transactions: one function for each kind of transaction of the protocol. All are flat (rule P6).

use std::sync::Arc;

use crate::ids::{ContenderId, Key, LeaseId, Revision, SessionId};
use crate::request::{Compare, Kv, Op, Txn, TxnAnswer};

/// Locks in one bundle: two operations each, and etcd takes 128 a branch unless configured otherwise. A name is at most 1 KiB
/// and a record a few hundred bytes, so a full bundle stays well below the 512 KiB of rule P6.
pub const LOCKS: usize = 64;

/// Keys that a put reads where other contenders are expected. Where there are more, a later read finds out.
const MANY: u32 = 256;

/// Names in one read, two operations each, or keys whose records are written together. The last contender may add 31.
pub const READS: usize = 32;

/// A key to put below a name.
#[derive(Debug)]
pub struct Placement {
    pub key: Key,
    pub lease: LeaseId,
    pub family: Key,
    pub record: Arc<[u8]>,
    /// Read all contenders of the name (up to [`MANY`]), not only the oldest one: others are expected.
    pub all: bool,
}

/// Puts all these keys unless one of their sessions was barred since: `fences` are the keys of these as they were, and are read if
/// nothing is put (rules P6, P8, P10). A single try puts them only if no key at all is below any of their names, and else reads who
/// owns these too (rule P11). `txn` has the [`delete`] of other keys that goes first, so that the ranges do not show those.
pub fn put(fences: Vec<(Key, Revision)>, keys: &[Placement], tries: bool, mut txn: Txn) -> Txn {
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
    txn
}

/// Reads the answer to a put of this many keys that was applied. Returns for each key the oldest keys of its family, its own included;
/// none, for a single try: no other was there.
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

/// Bars the session: what was sent while its key was `modified` at an earlier revision can no longer apply. Without a revision it
/// creates the session key (rule P10). It may read another key too.
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
    let with = |op: Op| std::iter::once(op).chain(read.map(get)).collect();
    Txn {
        when: vec![unchanged],
        then: with(Op::Put { key: session.clone(), value: Arc::from([]), lease }),
        or_else: with(Op::Get { key: session.clone(), values: true }),
    }
}

/// Reads the answer to a barrier: the session key's mod revision, if it is under this lease, and the other key's create revision.
pub fn barred(answer: TxnAnswer, lease: LeaseId) -> (Option<Revision>, Option<Revision>) {
    let barrier = answer.succeeded.then_some(answer.revision);
    let mut answers = answer.firsts();
    let found = answers.next().flatten().filter(|kv| kv.lease == Some(lease));
    let read = answers.next().flatten().map(|kv| kv.create_revision);
    (barrier.or(found.map(|kv| kv.mod_revision)), read)
}

/// A contender's key to delete, guarded so that a late delete harms no later incarnation (rule P24).
#[derive(Debug, Clone)]
pub struct Deletion {
    pub contender: ContenderId,
    pub session: SessionId,
    pub key: Key,
    /// `None`: nothing is known but that no put of it can apply any more (rules P10, P34).
    pub created: Option<Revision>,
}

/// Deletes these keys if each whose create revision is known is there, and no other is; else reads them.
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
    pub key: Key,
    /// The mod revision of our own last write: so its incarnation and its lease are ours.
    pub modified: Revision,
    pub lease: LeaseId,
    pub record: Arc<[u8]>,
}

/// Writes the records of these keys if all are as they were last written here, else reads them.
pub fn describe(keys: &[Description]) -> Txn {
    let mut txn = Txn::default();
    for Description { key, modified, lease, record, .. } in keys {
        txn.when.push(Compare::Modified(key.clone(), *modified));
        txn.then.push(Op::Put { key: key.clone(), value: record.clone(), lease: *lease });
        txn.or_else.push(get(key));
    }
    txn
}

/// Reads the response to a [`describe`], if there is one: the mod revision of each key, if this process wrote that.
pub fn described(
    keys: &[Description],
    answer: Option<TxnAnswer>,
) -> impl Iterator<Item = (&Description, Option<Revision>)> {
    let written = answer.as_ref().filter(|it| it.succeeded).map(|it| it.revision);
    let mut found = answer.into_iter().flat_map(TxnAnswer::firsts);
    keys.iter().map(move |it| {
        let unchanged = found.next().flatten().filter(|kv| kv.mod_revision == it.modified);
        (it, written.or(unchanged.map(|kv| kv.mod_revision)))
    })
}

fn get(key: &Key) -> Op {
    Op::Get { key: key.clone(), values: false }
}

/// Reads the oldest keys that begin with this.
pub fn oldest(family: &Key, limit: u32, values: bool) -> Op {
    Op::Range { prefix: family.clone(), limit: Some(limit), values, up_to: None }
}
