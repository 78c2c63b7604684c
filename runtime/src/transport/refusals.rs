//! Refusals of deletes and barriers, which the core sends again until etcd carries them out (rule P34). Often no caller learns
//! of them, so they are logged; a refused put is its caller's error.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use etcd_locked_core::{Cause, Failure, Key, Op, Txn};

use crate::clock::Moment;
use crate::mutex::lock;

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
        let mut keys = lock(&self.keys);
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
