//! How leases end: lost, with their bodies; or retired, and revoked after the last of them (rules P10, P26, P28).

use std::time::Duration;

use crate::clock::Moment;
use crate::core::bundle::{self, Deletion};
use crate::core::lease::{Lease, LeaseRef, State};
use crate::core::mode::Seat;
use crate::core::place;
use crate::core::queue::{Queued, Slot};
use crate::core::request::{Failure, Request, Revision, TxnAnswer};
use crate::core::{Core, Exchange, Output, Refused, Timer, steps};
use crate::error::LossCause;

/// How long to find out why a lease is gone, before its bodies are told without.
const AUTOPSY: Duration = Duration::from_millis(300);

impl Core {
    /// The lease is gone at etcd: its bodies are not polled from now on, and told as soon as it is known why.
    pub(super) fn ended(&mut self, now: Moment, lease: LeaseRef) {
        if let Some(l) = self.leases.get_mut(&lease) {
            l.ended = true;
            l.deadline.lose();
        }
        self.retire(now, lease);
        if let Some(l) = self.leases.get(&lease) {
            let request = Request::Txn(bundle::read_session(l));
            self.send(now, request, Exchange::Autopsy(lease));
            self.at(now + AUTOPSY, Timer::Stop(lease));
        }
    }

    /// A revision from before what was known when it was asked for: then etcd has lost its data (rule P35). Only the cause
    /// hangs on it; a lagging member can do no more harm than to mistake that.
    pub(super) fn autopsied(
        &mut self,
        now: Moment,
        lease: LeaseRef,
        floor: Revision,
        result: Result<TxnAnswer, Failure>,
    ) {
        let cause = match result {
            Ok(answer) if answer.revision < floor => LossCause::Wiped,
            _ => LossCause::Revoked,
        };
        self.lose(now, lease, cause);
    }

    /// The lease is not to be relied on any more: its bodies stop, its waiters queue again under another (rule P28).
    pub(super) fn lose(&mut self, now: Moment, lease: LeaseRef, cause: LossCause) {
        let Some(l) = self.leases.get_mut(&lease) else {
            return;
        };
        l.deadline.lose();
        self.leave(now, lease, State::Lost, Some(cause));
    }

    /// The lease takes no more acquisitions, but keeps its bodies (rule P10).
    pub(super) fn retire(&mut self, now: Moment, lease: LeaseRef) {
        // A lost lease stays lost, and is not renewed again (rules P28, P30).
        if self.leases.get(&lease).is_some_and(Lease::is_alive) {
            self.leave(now, lease, State::Retired, None);
        }
    }

    fn leave(&mut self, now: Moment, lease: LeaseRef, state: State, lost: Option<LossCause>) {
        let Some(l) = self.leases.get_mut(&lease) else {
            return;
        };
        l.state = state;
        // As long as its bodies keep it alive it is still to be found out what was put under it.
        let settles = state == State::Retired && l.bodies > 0 && l.session_revision != 0;
        if !settles {
            l.seal = None;
            l.doubt.clear();
        }
        l.unfresh.clear();
        l.joining.clear();
        l.pending.clear();
        let (id, ttl_secs) = (l.id, l.ttl_secs);
        let warming = std::mem::take(&mut l.warming);
        self.unpool(ttl_secs, lease);
        let mut left = Vec::new();
        let mut lost_calls = Vec::new();
        let mut unconfirmed = Vec::new();
        steps::count(self.queues.len());
        for (name, queue) in &mut self.queues {
            if queue.slot.lease() != Some(lease) {
                continue;
            }
            match (&mut queue.slot, lost) {
                (held @ Slot::Held { .. }, Some(cause)) => {
                    lost_calls.extend(held.holders().map(|call| (call, cause)));
                    held.lose();
                    if queue.seat != Seat::Exclusive {
                        self.next.push_back(name.clone()); // who wanted to join learns that this is over
                    }
                    continue;
                }
                (Slot::Held { .. } | Slot::Deleting { .. }, None) => continue,
                (Slot::Deleting { confirm, .. }, Some(cause)) => {
                    unconfirmed.extend(confirm.take().map(|call| (call, cause)));
                }
                // The lease may live on, with its bodies or because it was lost only to us; or the key was put under another
                // one. It must not block the others.
                (Slot::Queued(Queued { created, .. }), _) => {
                    let key = place::key(&queue.family, id, queue.seat);
                    self.deletions.push_back(Deletion {
                        name: name.clone(),
                        key,
                        created: *created,
                        lease,
                    });
                }
                _ => {}
            }
            queue.slot = Slot::Free;
            left.push(name.clone());
        }
        for (call, cause) in lost_calls {
            self.lose_call(call, cause);
        }
        for (call, cause) in unconfirmed {
            self.confirmed(call, Err(Refused::Lost { cause }));
        }
        self.advance_all(now, &left);
        for (call, _) in warming {
            self.warm(now, call, ttl_secs);
        }
        if settles {
            self.seal(now, lease);
            self.at(now, Timer::Seal(lease)); // one that was under way goes on
        }
        self.revoke_if_done(now, lease);
    }

    /// Revokes a lease that is of no more use, once no body runs under it (rule P26).
    pub(super) fn revoke_if_done(&mut self, now: Moment, lease: LeaseRef) {
        let Some(l) = self.leases.get(&lease) else {
            return;
        };
        if matches!(l.state, State::Retired | State::Lost) && l.bodies == 0 {
            let id = l.id;
            self.leases.remove(&lease);
            self.flush_deletions(now); // whose answers are waited for
            self.send(now, Request::Revoke { lease: id }, Exchange::Revoke);
        }
    }

    /// etcd has forgotten everything: all leases are lost, but one that is newer.
    pub(super) fn wiped(&mut self, now: Moment, but: Option<LeaseRef>) {
        let others: Vec<LeaseRef> = self
            .leases
            .iter()
            .filter(|(lease, l)| Some(**lease) != but && l.is_alive() && l.session_revision != 0)
            .map(|(lease, _)| *lease)
            .collect();
        for lease in others {
            self.lose(now, lease, LossCause::Wiped);
        }
        // Watches wait for revisions the new store may not reach for days.
        for (id, name) in std::mem::take(&mut self.watches) {
            self.outputs.push_back(Output::Unwatch { id });
            if let Some(queue) = self.queues.get_mut(&name) {
                queue.watch = None;
                self.looks.insert(name);
            }
        }
    }
}
