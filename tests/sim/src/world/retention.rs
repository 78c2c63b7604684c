//! Retention (rule P39): no other call owns what a call has left locked before the time is over.

use std::sync::Arc;
use std::time::Duration;

use super::bench::{Bench, Process};
use super::clients::{Body, incarnation};
use super::drift::Drift;
use super::etcd::Incarnation;
use super::nemesis::lease_of;
use super::violation::must;
use crate::world::CallId;
use etcd_locked_core::{Deadline, Moment};

/// How far the clocks of a process and of etcd may drift apart: the promise is as good as they are.
const DRIFT: f64 = 0.01;

/// How long a process that ends waits for etcd after its grace.
const FAREWELL: Duration = Duration::from_secs(2);

/// A key that is to stay.
#[derive(Debug)]
pub(crate) struct Retained {
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
        let lost = body.lost.is_some_and(|cause| cause != etcd_locked_core::LossCause::Shutdown)
            || body.grant.deadline.is_over(clock.shown(self.now));
        if lost || until <= self.now || !self.processes[process].is_there() {
            return;
        }
        let retained = body.grant.owned.iter().map(|owned| Retained {
            call,
            process,
            key: incarnation(owned),
            until,
            clock,
            deadline: body.grant.deadline.clone(),
            secured: false,
        });
        self.retained.extend(retained);
    }

    pub(super) fn check_retained(&mut self) {
        if self.retained.is_empty() {
            return;
        }
        let mut retained = std::mem::take(&mut self.retained);
        retained.retain_mut(|retained| {
            if retained.until <= self.now || self.tainted.contains(&retained.key) {
                return false;
            }
            let (key, created) = &retained.key;
            let there = self.store.kv(key).filter(|kv| kv.create_revision == *created);
            match there {
                Some(kv) => {
                    let first = lease_of(&String::from_utf8_lossy(key));
                    retained.secured |= first != kv.lease;
                    true
                }
                None => {
                    let gone = self.may_go(retained);
                    must!(
                        Retention,
                        gone,
                        "{} of {created}, to be retained by call {} until {:?}, is gone",
                        String::from_utf8_lossy(key),
                        retained.call,
                        retained.until
                    );
                    false
                }
            }
        });
        self.retained = retained;
    }

    /// A process has ended in order: what it was to keep is retained without it, unless etcd has not answered until the end of the
    /// farewell. Then the key goes with its lease.
    pub(super) fn check_retained_after(&mut self, process: usize) {
        let Process { clock, grace, .. } = self.processes[process];
        let spent = grace.is_some_and(|end| clock.shown(self.now) >= end + FAREWELL);
        let mut retained = std::mem::take(&mut self.retained);
        retained.retain(|it| !(spent && it.process == process && !it.secured));
        for retained in retained.iter().filter(|it| it.process == process) {
            let late = retained.until <= self.now + Duration::from_millis(1);
            must!(
                Retention,
                late || self.may_go(retained) || retained.secured,
                "p{process} has ended without keeping what call {} has left locked",
                retained.call
            );
        }
        self.retained = retained;
    }

    fn may_go(&self, retained: &Retained) -> bool {
        let lost = retained.deadline.is_over(retained.clock.shown(self.now));
        !retained.secured && (lost || self.processes[retained.process].dead)
    }
}
