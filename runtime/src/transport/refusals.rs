//! Refusals of deletes and barriers, which the core sends again until etcd carries them out (rule P34). Often no caller learns
//! of them, so they are logged; a refused put is its caller's error.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use etcd_locked_core::{Failure, Key, Op, Txn};

use crate::clock::Moment;
use crate::mutex::lock;

/// A refusal counts for so long: its write is sent again about once a second, unless its lease has ended.
const FORGET: Duration = Duration::from_secs(60);

/// How often refusals that are over are looked for, as that is a walk over all of them.
const WALK: Duration = Duration::from_secs(1);

/// The keys whose write etcd refuses at present. One warning is logged when there is a first, one line when none is left.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<Refused>);

#[derive(Debug, Default)]
struct Refused {
    /// When etcd last refused the write of each key, if it has not carried it out since.
    keys: BTreeMap<Key, Moment>,
    walked: Option<Moment>,
}

impl Refusals {
    /// etcd answered a write, or did not.
    pub(super) fn note<T>(&self, now: Moment, txn: &Txn, result: &Result<T, Failure>) {
        let refused = match result {
            // Perhaps etcd refuses the puts. The core sends the deletes again apart, which shows whether they are refused.
            Err(Failure::Refused(..)) if puts_records(txn) => return,
            Err(Failure::Refused(_, cause)) => Some(cause),
            Err(_) => return,
            Ok(_) => None,
        };
        let mut all = lock(&self.0);
        if refused.is_some() && all.walked.is_none_or(|walked| now - walked >= WALK) {
            all.walked = Some(now);
            all.keys.retain(|_, at| now - *at < FORGET);
        }
        let was_empty = all.keys.is_empty();
        if refused.is_none() && was_empty {
            return;
        }
        for key in repeated(txn) {
            match refused {
                Some(_) => drop(all.keys.insert(key.clone(), now)),
                None => drop(all.keys.remove(key)),
            }
        }
        let is_empty = all.keys.is_empty();
        drop(all); // a subscriber may keep the log line waiting
        match refused {
            Some(cause) if was_empty && !is_empty => {
                tracing::warn!(parent: None, code = "etcd.releases_denied", %cause, "etcd refuses to delete keys of this process, or to settle what was sent before: tried again as long as their lease lives");
            }
            None if is_empty => {
                tracing::info!(parent: None, "etcd carries out again what it had refused")
            }
            _ => {}
        }
    }
}

/// Whether it puts contenders, and not only a session key.
fn puts_records(txn: &Txn) -> bool {
    let is_record = |op: &Op| matches!(op, Op::Put { value, .. } if !value.is_empty());
    txn.then.iter().any(is_record)
}

/// The keys of a transaction that the core sends again until etcd has carried it out: those it deletes, or the session key of a
/// barrier, which alone is put without a record.
fn repeated(txn: &Txn) -> impl Iterator<Item = &Key> {
    txn.then.iter().filter_map(|op| match op {
        Op::Delete(key) => Some(key),
        Op::Put { key, value, .. } if value.is_empty() => Some(key),
        _ => None,
    })
}
