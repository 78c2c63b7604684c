//! Refusals of deletes and barriers, which the core sends again until etcd carries them out (rule P34). Often no caller learns
//! of them, so they are logged; a refused put is its caller's error.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use etcd_locked_core::{Cause, Failure, Key, Op, Txn};

use crate::clock::Moment;

/// A refusal counts for so long: its write is sent again about once a second, unless its lease has ended.
const FORGET: Duration = Duration::from_secs(60);

/// The keys whose write etcd refuses at present. One warning is logged when there is a first, one line when none is left.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    keys: Mutex<Keys>,
    /// Whether there are any: while there are none, a write that succeeds does not lock `keys`.
    any: AtomicBool,
}

/// The keys whose write was refused within [`FORGET`], and not carried out since.
#[derive(Debug, Default)]
struct Keys {
    /// When etcd refused each one last.
    refused: BTreeMap<Key, Moment>,
    /// Every refusal, the oldest first: what is over is found without a walk over all keys.
    refusals: VecDeque<(Moment, Key)>,
}

/// What is to be logged.
#[derive(Debug)]
enum Line<'a> {
    First(&'a Cause),
    Over,
}

impl Refusals {
    /// etcd answered a write, or did not.
    pub(super) fn note<T>(&self, now: Moment, txn: &Txn, result: &Result<T, Failure>) {
        match self.line(now, txn, result) {
            Some(Line::First(cause)) => {
                tracing::warn!(parent: None, code = "etcd.releases_denied", %cause, "etcd refuses to delete keys of this process, or to settle what was sent before: tried again as long as their lease lives");
            }
            Some(Line::Over) => {
                tracing::info!(parent: None, "etcd carries out again what it had refused");
            }
            None => {}
        }
    }

    fn line<'a, T>(
        &self,
        now: Moment,
        txn: &Txn,
        result: &'a Result<T, Failure>,
    ) -> Option<Line<'a>> {
        let refused = match result {
            // Perhaps etcd refuses the puts. The core sends the deletes again apart, which shows whether they are refused.
            Err(Failure::Refused(..)) if puts_records(txn) => return None,
            Err(Failure::Refused(_, cause)) => Some(cause),
            Ok(_) if self.any.load(Ordering::Acquire) => None,
            _ => return None,
        };
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.is_some() {
            keys.forget(now);
        }
        let any = !keys.refused.is_empty();
        for key in repeated(txn) {
            match refused {
                Some(_) => keys.refuse(now, key),
                None => keys.carry_out(key),
            }
        }
        let none = keys.refused.is_empty();
        self.any.store(!none, Ordering::Release);
        match (any, none) {
            (false, false) => refused.map(Line::First),
            (true, true) => Some(Line::Over),
            _ => None,
        }
    }
}

impl Keys {
    fn refuse(&mut self, now: Moment, key: &Key) {
        self.refused.insert(key.clone(), now);
        self.refusals.push_back((now, key.clone()));
    }

    fn carry_out(&mut self, key: &Key) {
        self.refused.remove(key);
        if self.refused.is_empty() {
            self.refusals.clear();
        }
    }

    /// Drops the keys whose last refusal is too long ago.
    fn forget(&mut self, now: Moment) {
        while let Some((at, key)) = self.refusals.front()
            && now - *at >= FORGET
        {
            if self.refused.get(key) == Some(at) {
                self.refused.remove(key);
            }
            self.refusals.pop_front();
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use etcd_locked_core::Refusal;

    use super::*;

    fn at(secs: u64) -> Moment {
        Moment::after_boot(Duration::from_secs(secs))
    }

    fn delete(keys: &[&str]) -> Txn {
        Txn { then: keys.iter().map(|key| Op::Delete((*key).into())).collect(), ..Txn::default() }
    }

    fn put(value: &[u8]) -> Txn {
        Txn {
            then: vec![Op::Put { key: "k".into(), value: value.into(), lease: 1 }],
            ..Txn::default()
        }
    }

    fn refused() -> Result<(), Failure> {
        Err(Failure::Refused(Refusal::Other, Arc::from(Box::from("no"))))
    }

    #[test]
    fn one_line_begins_a_fault_and_one_ends_it() {
        let refusals = Refusals::default();
        let both = delete(&["a", "b"]);
        let line = |secs, txn: &Txn, result: &Result<(), Failure>| {
            refusals.line(at(secs), txn, result).map(|line| match line {
                Line::First(_) => "first",
                Line::Over => "over",
            })
        };
        assert_eq!(line(1, &both, &Ok(())), None);
        assert_eq!(line(2, &both, &refused()), Some("first"));
        assert_eq!(line(3, &delete(&["a"]), &refused()), None);
        assert_eq!(line(3, &put(b""), &refused()), None);
        assert_eq!(line(4, &delete(&["a"]), &Ok(())), None);
        assert_eq!(line(4, &put(b""), &Ok(())), None);
        assert_eq!(line(5, &delete(&["b"]), &Ok(())), Some("over"));
        assert_eq!(line(6, &delete(&["b"]), &refused()), Some("first"));
    }

    #[test]
    fn a_fault_is_over_with_the_lease_it_was_about() {
        let refusals = Refusals::default();
        let first = |secs, key| refusals.line(at(secs), &delete(&[key]), &refused()).is_some();
        assert!(first(1, "a"));
        assert!(!first(60, "b"));
        assert!(first(121, "c"));
    }
}
