//! Refusals of deletes and barriers, which the core sends again until etcd carries them out (rule P34). Often no caller learns of them, so
//! they are logged; a refused put is its caller's error.

use std::sync::Mutex;
use std::time::Duration;

use etcd_locked_core::{Cause, Op, Txn};

use crate::clock::Moment;
use crate::mutex::lock;

/// They are logged once in this time, while they last.
const LOGGED: Duration = Duration::from_secs(60);

/// When such a refusal was logged last.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<Option<Moment>>);

impl Refusals {
    /// etcd has refused a write.
    pub(super) fn note(&self, now: Moment, txn: &Txn, cause: &Cause) {
        let is_record = |op: &Op| matches!(op, Op::Put { value, .. } if !value.is_empty());
        // Perhaps it refuses the puts. The core sends the deletes again apart, which shows whether they are refused.
        if txn.then.iter().any(is_record) {
            return;
        }
        let mut logged = lock(&self.0);
        if logged.is_some_and(|at| now - at < LOGGED) {
            return;
        }
        *logged = Some(now);
        drop(logged); // a subscriber may keep the log line waiting
        tracing::warn!(parent: None, code = "etcd.releases_denied", %cause, "etcd refuses to delete keys of this process, or to settle what was sent before: tried again as long as their lease lives");
    }
}
