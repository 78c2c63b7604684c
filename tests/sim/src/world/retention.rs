//! What calls have left locked for a while (rule P39): nobody else owns it before the time is over.

use std::sync::Arc;
use std::time::Duration;

use super::bench::Bench;
use super::clients::{Body, incarnation};
use super::drift::Drift;
use super::etcd::Incarnation;
use super::nemesis::lease_of;
use super::violation::must;
use crate::clock::Moment;
use crate::core::CallId;
use crate::core::deadline::Deadline;

/// How far the clocks of a process and of etcd may drift apart: the promise is as good as they are.
const DRIFT: f64 = 0.01;

/// A key that is to stay.
#[derive(Debug)]
pub(crate) struct Kept {
    call: CallId,
    process: usize,
    key: Incarnation,
    /// The time on the clock that counts: etcd's.
    until: Moment,
    clock: Drift,
    /// Of the lease the key was held under: what is lost before the key has its own is lost.
    deadline: Arc<Deadline>,
    /// It has its own lease: from now on nothing excuses its going, not even the end of its process.
    secured: bool,
}

impl Bench {
    /// The body of a call is gone before it was to let go.
    pub(super) fn keeps(&mut self, call: CallId, process: usize, body: &Body, granted: Moment) {
        let Some(at_least) = self.calls[&call].at_least else {
            return;
        };
        let until = granted + at_least.mul_f64(1.0 - DRIFT);
        let clock = self.processes[process].clock;
        let lost = body
            .lost
            .is_some_and(|cause| cause != crate::error::LossCause::Shutdown)
            || body.grant.deadline.is_over(clock.shown(self.now));
        if lost || until <= self.now || !self.processes[process].is_there() {
            return;
        }
        let kept = body.grant.owned.iter().map(|owned| Kept {
            call,
            process,
            key: incarnation(owned),
            until,
            clock,
            deadline: body.grant.deadline.clone(),
            secured: false,
        });
        self.kept.extend(kept);
    }

    pub(super) fn check_kept(&mut self) {
        if self.kept.is_empty() {
            return;
        }
        let mut kept = std::mem::take(&mut self.kept);
        kept.retain_mut(|kept| {
            if kept.until <= self.now || self.tainted.contains(&kept.key) {
                return false;
            }
            let (key, created) = &kept.key;
            let there = self
                .store
                .kv(key)
                .filter(|kv| kv.create_revision == *created);
            match there {
                Some(kv) => {
                    let first = lease_of(&String::from_utf8_lossy(key));
                    kept.secured |= first != Some(kv.lease);
                    true
                }
                None => {
                    let gone = self.may_go(kept);
                    must!(
                        Kept,
                        gone,
                        "{} of {created}, to be kept by call {} until {:?}, is gone",
                        String::from_utf8_lossy(key),
                        kept.call,
                        kept.until
                    );
                    false
                }
            }
        });
        self.kept = kept;
    }

    /// A process has ended in order: what it was to keep is kept without it.
    pub(super) fn check_kept_after(&self, process: usize) {
        for kept in self.kept.iter().filter(|kept| kept.process == process) {
            let late = kept.until <= self.now + Duration::from_millis(1);
            must!(
                Kept,
                late || self.may_go(kept) || kept.secured,
                "p{process} has ended without keeping what call {} has left locked",
                kept.call
            );
        }
    }

    fn may_go(&self, kept: &Kept) -> bool {
        let lost = kept.deadline.is_over(kept.clock.shown(self.now));
        !kept.secured && (lost || self.processes[kept.process].dead)
    }
}
