//! The transactions of the protocol, and how their answers read. Flat, always (rule P6).

use std::sync::Arc;

use crate::core::lease::{Lease, LeaseRef};
use crate::core::mode::Seat;
use crate::core::place;
use crate::core::request::{
    Compare, Key, Kv, LeaseId, Op, OpAnswer, Order, Revision, Txn, TxnAnswer,
};

/// Locks a bundle: two operations each, and etcd takes 128 a branch unless told otherwise. A name is at most 1 KiB and a
/// record a few hundred bytes, so a full bundle stays well below the 512 KiB of rule P6.
pub(crate) const LOCKS: usize = 64;

/// Keys that are read beside a put where others contend. Where there are more, a look is to find out.
const WHOLE: i64 = 512;

/// Names a read: at most three operations each.
pub(crate) const READS: usize = 40;

/// Keys in doubt a seal: one operation each beside the session key's.
pub(crate) const DOUBTS: usize = 100;

/// `<prefix without its last "/">%s/<lease id in hex>`: `%s` can come out of no name (rule P10b).
pub(crate) fn session_key(prefix: &str, lease: LeaseId) -> Key {
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    format!("{prefix}%s/{lease:x}").into()
}

/// A key to put.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) key: Key,
    pub(crate) family: Key,
    pub(crate) record: Arc<[u8]>,
    /// Read all that contend (up to [`WHOLE`]), not only the oldest key: others are expected.
    pub(crate) whole: bool,
}

/// Puts all these keys unless the session was sealed since (rules P6, P8, P10).
pub(crate) fn put(lease: &Lease, items: &[Item]) -> Txn {
    Txn {
        when: vec![session_unchanged(lease)],
        then: items
            .iter()
            .flat_map(|item| {
                [
                    Op::Put {
                        key: item.key.clone(),
                        value: item.record.clone(),
                        lease: lease.id,
                    },
                    Op::Range {
                        prefix: item.family.clone(),
                        limit: if item.whole { WHOLE } else { 1 },
                        values: false,
                        order: Order::OldestFirst,
                        older_than: None,
                    },
                ]
            })
            .collect(),
        or_else: vec![Op::Get {
            key: lease.session.clone(),
        }],
    }
}

/// Puts these keys only if nothing at all is below any of the names (rule P11).
pub(crate) fn put_if_none(lease: &Lease, families: &[Key], record: &Arc<[u8]>) -> Txn {
    let none = families.iter().map(|family| Compare::NoneUnder {
        prefix: family.clone(),
    });
    let puts = families.iter().map(|family| Op::Put {
        key: place::key(family, lease.id, Seat::Exclusive),
        value: record.clone(),
        lease: lease.id,
    });
    let session = Op::Get {
        key: lease.session.clone(),
    };
    let oldest = families.iter().map(|family| Op::Range {
        prefix: family.clone(),
        limit: 1,
        values: true,
        order: Order::OldestFirst,
        older_than: None,
    });
    Txn {
        when: std::iter::once(session_unchanged(lease))
            .chain(none)
            .collect(),
        then: puts.collect(),
        or_else: std::iter::once(session).chain(oldest).collect(),
    }
}

/// Seals the lease: whatever was sent under the old session revision can no longer apply, and the answer tells which of
/// the keys in doubt exist. With revision 0 it creates the session key (rule P10).
pub(crate) fn seal(lease: &Lease, doubts: impl Iterator<Item = Key>) -> Txn {
    let doubts: Vec<Op> = doubts.map(|key| Op::Get { key }).collect();
    let mut then = vec![Op::Put {
        key: lease.session.clone(),
        value: [].into(),
        lease: lease.id,
    }];
    let mut or_else = vec![Op::Get {
        key: lease.session.clone(),
    }];
    then.extend(doubts.iter().cloned());
    or_else.extend(doubts);
    Txn {
        when: vec![session_unchanged(lease)],
        then,
        or_else,
    }
}

/// Reads the session key alone: what counts is the revision (rule P35).
pub(crate) fn read_session(lease: &Lease) -> Txn {
    Txn {
        then: vec![Op::Get {
            key: lease.session.clone(),
        }],
        ..Txn::default()
    }
}

/// Whether the lease was not sealed since: what was sent before a seal comes too late after it (rule P10).
pub(crate) fn session_unchanged(lease: &Lease) -> Compare {
    Compare::ModRevision {
        key: lease.session.clone(),
        revision: lease.session_revision,
    }
}

/// One key to delete, in the incarnation it was created with, and the lease it was attached to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Deletion {
    /// Its place.
    pub(crate) name: Key,
    pub(crate) key: Key,
    pub(crate) created: Revision,
    pub(crate) lease: LeaseRef,
}

/// Deletes these incarnations if all of them are there, else tells which are (rule P24).
pub(crate) fn delete(items: &[Deletion]) -> Txn {
    Txn {
        when: items
            .iter()
            .map(|d| Compare::CreateRevision {
                key: d.key.clone(),
                revision: d.created,
            })
            .collect(),
        then: items
            .iter()
            .map(|d| Op::Delete { key: d.key.clone() })
            .collect(),
        or_else: items
            .iter()
            .map(|d| Op::Get { key: d.key.clone() })
            .collect(),
    }
}

/// The deletions that are still to be done after an answer to [`delete`].
pub(crate) fn undeleted(items: Vec<Deletion>, answer: TxnAnswer) -> Vec<Deletion> {
    if answer.succeeded {
        return Vec::new();
    }
    let found = answer.answers.into_iter().map(first);
    items
        .into_iter()
        .zip(found)
        .filter(|(deletion, kv)| {
            kv.as_ref()
                .is_some_and(|kv| kv.create_revision == deletion.created)
        })
        .map(|(deletion, _)| deletion)
        .collect()
}

/// Puts these incarnations under another lease if all of them are there, else tells which are (rule P39).
pub(crate) fn retain(items: &[Deletion], lease: LeaseId, record: &Arc<[u8]>) -> Txn {
    let Txn { when, or_else, .. } = delete(items);
    let put = |d: &Deletion| Op::Put {
        key: d.key.clone(),
        value: record.clone(),
        lease,
    };
    Txn {
        when,
        then: items.iter().map(put).collect(),
        or_else,
    }
}

/// Attaches an overwritten key to its lease again, once, if nobody touched it since.
pub(crate) fn repair(
    key: Key,
    created: Revision,
    seen: Revision,
    lease: LeaseId,
    record: Arc<[u8]>,
) -> Txn {
    Txn {
        when: vec![
            Compare::CreateRevision {
                key: key.clone(),
                revision: created,
            },
            Compare::ModRevision {
                key: key.clone(),
                revision: seen,
            },
        ],
        then: vec![Op::Put {
            key,
            value: record,
            lease,
        }],
        or_else: Vec::new(),
    }
}

/// One name to look at: its family, its own key and the create revision that key should have.
#[derive(Debug, Clone)]
pub(crate) struct Look {
    /// Its place.
    pub(crate) name: Key,
    pub(crate) family: Key,
    pub(crate) key: Key,
    pub(crate) created: Revision,
    pub(crate) asks: Asks,
    /// One key alone may be a deeper one, or of no weight: read all of them.
    pub(crate) deep: bool,
}

/// The question of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    /// Who is before it, and who owns the name.
    Before,
    /// Who is before it: the last of them has gone, so most likely nobody any more. Each range goes through all keys of the
    /// family at etcd, and this is a single one.
    Turn,
    /// It is held: whether anybody stands behind it (rule P23).
    Behind,
}

impl Look {
    /// Whether the oldest key is read for itself, with its value.
    fn asks_for_owner(&self) -> bool {
        self.asks == Asks::Before && !self.deep
    }

    /// What the next of these answers say of it.
    fn sight(&self, answers: &mut impl Iterator<Item = OpAnswer>) -> Option<Sight> {
        if self.asks == Asks::Turn {
            let mut others = found(answers.next()?);
            // The keys of one transaction are equally old, in no order: a deeper name may have been put with this one.
            let at = others.iter().position(|kv| kv.key == self.key.as_bytes());
            let own = at.map(|at| others.remove(at));
            return Some(Sight {
                own,
                others,
                oldest: None,
            });
        }
        let own = first(answers.next()?);
        let others = found(answers.next()?);
        let oldest = match self.asks_for_owner() {
            true => first(answers.next()?),
            false => others.first().cloned(),
        };
        Some(Sight {
            own,
            others,
            oldest,
        })
    }
}

/// Reads where these keys stand.
pub(crate) fn look(looks: &[Look]) -> Txn {
    let mut then = Vec::with_capacity(3 * looks.len());
    for look in looks {
        let range = |limit, values, order, older_than| Op::Range {
            prefix: look.family.clone(),
            limit,
            values,
            order,
            older_than,
        };
        if look.asks != Asks::Turn {
            then.push(Op::Get {
                key: look.key.clone(),
            });
        }
        then.push(match (look.asks, look.deep) {
            (Asks::Before, values) => range(0, values, Order::OldestFirst, Some(look.created)),
            // With its own.
            (Asks::Turn, _) => range(0, false, Order::OldestFirst, Some(look.created + 1)),
            (Asks::Behind, false) => range(1, false, Order::NewestFirst, None),
            (Asks::Behind, true) => range(0, false, Order::NewestFirst, None),
        });
        if look.asks_for_owner() {
            then.push(range(1, true, Order::OldestFirst, None));
        }
    }
    Txn {
        then,
        ..Txn::default()
    }
}

/// What a look at one name saw.
#[derive(Debug)]
pub(crate) struct Sight {
    pub(crate) own: Option<Kv>,
    /// The older ones, oldest first; of a held key the newest first.
    pub(crate) others: Vec<Kv>,
    /// The oldest key, with its value, if it was asked for.
    pub(crate) oldest: Option<Kv>,
}

/// The answers to [`look`], one for each name.
pub(crate) fn sights(looks: Vec<Look>, answer: TxnAnswer) -> Vec<(Look, Sight)> {
    let mut answers = answer.answers.into_iter();
    let sights = looks.into_iter().map_while(|look| {
        let sight = look.sight(&mut answers)?;
        Some((look, sight))
    });
    sights.collect()
}

/// What one operation found.
pub(crate) fn found(answer: OpAnswer) -> Vec<Kv> {
    match answer {
        OpAnswer::Found { kvs } => kvs,
        OpAnswer::Put { previous } => previous.into_iter().collect(),
        OpAnswer::Deleted => Vec::new(),
    }
}

/// The first key-value one operation found.
pub(crate) fn first(answer: OpAnswer) -> Option<Kv> {
    found(answer).into_iter().next()
}
