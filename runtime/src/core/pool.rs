//! The leases of a process: one for each TTL in use, opened when first wanted, renewed, replaced when lost (rule P27).
//!
//! Where thousands of locks are held they are spread over a few: what a lease takes with it when it is lost is bounded, and
//! so is what etcd has to keep together.

use std::time::Duration;

use crate::clock::Moment;
use crate::core::bundle::{self, Deletion};
use crate::core::call::Bid;
use crate::core::lease::{Lease, LeaseRef, State, Trouble};
use crate::core::mode::{Mode, Seat};
use crate::core::place;
use crate::core::queue::{Queued, Slot};
use crate::core::request::{Cause, Failure, Refusal, Request, Response, Revision, TxnAnswer};
use crate::core::{CallId, Core, Exchange, LEASES, Output, Refused, Timer};
use crate::error::LossCause;

/// How long to find out why a lease is gone, before its bodies are told without.
const AUTOPSY: Duration = Duration::from_millis(300);

impl Core {
    /// The lease a call of this TTL is to use: the oldest that has room, so that the others come to rest. Where none has,
    /// another one is asked for, and meanwhile they take more.
    pub(super) fn lease_for(&mut self, now: Moment, ttl_secs: i64) -> LeaseRef {
        let pooled = self.pool.get(&ttl_secs).map_or(&[][..], Vec::as_slice);
        let leases = pooled.iter();
        let leases = leases.filter_map(|lease| Some((*lease, self.leases.get(lease)?)));
        let mut opening = false;
        let mut best: Option<(bool, usize, LeaseRef)> = None;
        for (lease, l) in leases {
            let load = l.bodies + l.pending.len();
            let opened = l.session_revision != 0;
            if opened && load < self.settings.bodies_per_lease {
                return lease;
            }
            opening |= !opened;
            best = best.into_iter().chain([(!opened, load, lease)]).min();
        }
        let another = !opening && pooled.len() < LEASES;
        match best {
            Some((_, _, lease)) => {
                if another {
                    self.open_another(now, ttl_secs);
                }
                lease
            }
            None => self.open_another(now, ttl_secs),
        }
    }

    fn open_another(&mut self, now: Moment, ttl_secs: i64) -> LeaseRef {
        let lease = self.new_id();
        self.leases.insert(lease, Lease::asked(now, ttl_secs));
        self.pool.entry(ttl_secs).or_default().push(lease);
        self.ask(now, lease);
        lease
    }

    /// No more calls for this lease.
    fn unpool(&mut self, ttl_secs: i64, lease: LeaseRef) {
        if let Some(leases) = self.pool.get_mut(&ttl_secs) {
            leases.retain(|of| *of != lease);
            if leases.is_empty() {
                self.pool.remove(&ttl_secs);
            }
        }
    }

    /// Whether nothing hangs on a lease, and calls have another one.
    fn is_spare(&self, lease: LeaseRef) -> bool {
        let Some(l) = self.leases.get(&lease) else {
            return false;
        };
        let first = self.pool.get(&l.ttl_secs).and_then(|leases| leases.first());
        l.state == State::Open
            && l.bodies + l.pending.len() + l.in_flight + l.warming.len() == 0
            && first.is_some_and(|first| *first != lease)
            && !self
                .queues
                .values()
                .any(|queue| queue.slot.lease() == Some(lease))
    }

    /// Opens the lease of a TTL before a lock needs it.
    pub(super) fn warm(&mut self, now: Moment, call: CallId, ttl_secs: i64) {
        if self.shutdown.is_some() {
            return self.refuse(call, Refused::ShuttingDown);
        }
        let lease = self.lease_for(now, ttl_secs);
        let Some(l) = self.leases.get_mut(&lease) else {
            return;
        };
        if l.state == State::Open {
            self.outputs.push_back(Output::Ready { call });
        } else {
            l.warming.push((call, now));
        }
    }

    /// Asks etcd for the lease.
    pub(super) fn ask(&mut self, now: Moment, lease: LeaseRef) {
        let Some(l) = self.leases.get(&lease) else {
            return;
        };
        if l.state != State::Granting {
            return;
        }
        let ttl_secs = l.ttl_secs;
        if l.failures > 0
            && l.warming.is_empty()
            && !l.pending.iter().any(|bid| self.wants(bid, lease))
        {
            // Nobody waits for it any more: the next call asks anew.
            self.leases.remove(&lease);
            self.unpool(ttl_secs, lease);
            return;
        }
        self.send(now, Request::Grant { ttl_secs }, Exchange::Grant(lease));
    }

    /// Whether a pending bid is still to be put: the same names may have been wanted, given up and wanted again.
    pub(super) fn wants(&self, bid: &Bid, lease: LeaseRef) -> bool {
        bid.names.iter().all(|name| {
            self.queues.get(name).is_some_and(|queue| {
                queue.group == bid.group
                    && matches!(queue.slot, Slot::Wanting { lease: of } if of == lease)
            })
        })
    }

    pub(super) fn granted(
        &mut self,
        now: Moment,
        lease: LeaseRef,
        sent: Moment,
        result: Result<Response, Failure>,
    ) {
        let prefix = self.settings.prefix.clone();
        let Some(l) = self.leases.get_mut(&lease) else {
            return;
        };
        match result {
            Ok(Response::Granted { lease: id, ttl }) => {
                l.granted(sent, id, ttl, bundle::session_key(&prefix, id));
                l.renew_at = l.renewal_after(sent);
                let renewal = l.renew_at;
                self.at(renewal, Timer::Renew(lease));
                self.arm_stop(lease);
                self.seal(now, lease);
            }
            Err(failure @ Failure::Refused { .. }) => {
                self.give_up(now, lease, &Refused::by(failure))
            }
            Ok(_) => self.give_up(
                now,
                lease,
                &Refused::Backend(std::sync::Arc::from(Box::from(
                    "etcd answered a grant with something else",
                ))),
            ),
            // A grant that was carried out unseen runs out by itself: nothing was put under it.
            Err(Failure::Unavailable(cause) | Failure::Unknown(cause)) => {
                let again = self.hold_off(now, lease, sent, cause);
                self.at(again, Timer::Grant(lease));
            }
        }
    }

    /// Notes that etcd was not reached for the lease; answers when to try again.
    pub(super) fn hold_off(
        &mut self,
        now: Moment,
        lease: LeaseRef,
        sent: Moment,
        cause: Cause,
    ) -> Moment {
        let Some(l) = self.leases.get_mut(&lease) else {
            return now;
        };
        l.failed(sent, cause);
        l.failures += 1;
        let failures = l.failures;
        let again = now + self.pause(failures);
        if let Some(l) = self.leases.get_mut(&lease) {
            l.hold_off = again;
        }
        self.at(again, Timer::Flush);
        self.trouble(now, lease);
        again
    }

    /// etcd was not reached for what readers are to know before they join others.
    pub(super) fn keeps_out(&mut self, now: Moment, lease: LeaseRef, sent: Moment, cause: Cause) {
        if let Some(l) = self.leases.get_mut(&lease)
            && !l.joining.is_empty()
        {
            l.failed(sent, cause);
            self.trouble(now, lease);
        }
    }

    /// etcd was reached for it.
    pub(super) fn lets_in(&mut self, lease: LeaseRef) {
        let joining = |l: &Lease| !l.joining.is_empty();
        if self.leases.get(&lease).is_some_and(joining) {
            self.reached(lease);
        }
    }

    /// etcd answered for the lease.
    pub(super) fn reached(&mut self, lease: LeaseRef) {
        if let Some(l) = self.leases.get_mut(&lease) {
            l.trouble = None;
            l.failures = 0;
        }
    }

    /// While etcd is not reached for a lease: refuses the calls that have waited for that as long as they should.
    pub(super) fn trouble(&mut self, now: Moment, lease: LeaseRef) {
        // In steps, the last of which ends with the time-out.
        let step = self.settings.connect_timeout / 20;
        let patience = self.settings.connect_timeout - step;
        let Some(l) = self.leases.get_mut(&lease) else {
            return;
        };
        let Some(Trouble {
            since,
            cause,
            step: armed,
        }) = l.trouble.clone()
        else {
            return;
        };
        // Bids whose calls have gone: in an outage nothing else takes them off.
        let mut pending = std::mem::take(&mut l.pending);
        pending.retain(|bid| self.wants(bid, lease));
        let Some(l) = self.leases.get_mut(&lease) else {
            return;
        };
        l.pending = pending;
        let is_due = |called: Moment| now - called.max(since) >= patience;
        let (due, warming): (Vec<_>, Vec<_>) =
            l.warming.drain(..).partition(|(_, called)| is_due(*called));
        let mut waiting = !warming.is_empty();
        l.warming = warming;
        let stuck = l.stuck();
        for (call, _) in due {
            self.refuse(call, Refused::Backend(cause.clone()));
        }
        for name in stuck {
            let Some(queue) = self
                .queues
                .get(&name)
                .filter(|queue| queue.slot.lease() == Some(lease))
            else {
                continue;
            };
            let since = |call: &CallId| self.calls.get(call).is_some_and(|c| is_due(c.since));
            let Some(line) = self.line_of(queue) else {
                continue;
            };
            // Behind readers who would join others, calls wait for those others.
            let held = matches!(queue.slot, Slot::Held { .. });
            let joins =
                |call: &CallId| self.calls.get(call).is_some_and(|c| c.mode == Mode::Shared);
            let line: Vec<CallId> = line
                .iter()
                .copied()
                .take_while(|c| !held || joins(c))
                .collect();
            let due: Vec<CallId> = line.iter().copied().filter(since).collect();
            waiting |= due.len() < line.len();
            self.reject(now, due, &Refused::Backend(cause.clone()));
            self.advance(now, &name);
        }
        // However often it fails meanwhile, one timer will do.
        if waiting && armed.is_none_or(|at| at <= now) {
            let next = now + step;
            self.at(next, Timer::Trouble(lease));
            if let Some(trouble) = self.leases.get_mut(&lease).and_then(|l| l.trouble.as_mut()) {
                trouble.step = Some(next);
            }
        }
    }

    /// The lease cannot be had: tells all who want it.
    pub(super) fn give_up(&mut self, now: Moment, lease: LeaseRef, why: &Refused) {
        let Some(mut l) = self.leases.remove(&lease) else {
            return;
        };
        self.unpool(l.ttl_secs, lease);
        for (call, _) in std::mem::take(&mut l.warming) {
            self.refuse(call, why.clone());
        }
        let mut refused = Vec::new();
        let mut left = Vec::new();
        for bid in l.pending {
            if !self.wants(&bid, lease) {
                continue;
            }
            for name in &*bid.names {
                if let Some(queue) = self.queues.get_mut(name) {
                    queue.slot = Slot::Free;
                }
                let line = self.queues.get(place::name_of(name));
                refused.extend(line.iter().flat_map(|queue| &queue.calls));
            }
            left.push(bid.names);
        }
        self.reject(now, refused, why);
        for names in left {
            self.advance_all(now, &names);
        }
        if l.id != 0 {
            self.send(now, Request::Revoke { lease: l.id }, Exchange::Revoke);
        }
    }

    /// Renews the lease unless that has been done since the timer was set.
    pub(super) fn renew_if_due(&mut self, now: Moment, lease: LeaseRef) {
        if self.leases.get(&lease).is_none_or(|l| l.renew_at > now) {
            return;
        }
        match self.is_spare(lease) {
            true => self.retire(now, lease),
            false => self.renew(now, lease),
        }
    }

    /// Renews the lease now, unless that is under way.
    pub(crate) fn renew(&mut self, now: Moment, lease: LeaseRef) {
        let cancelled = self.shutdown_cancels();
        let Some(l) = self.leases.get_mut(&lease) else {
            return;
        };
        if !l.is_alive() || l.renewing || cancelled {
            return;
        }
        l.renewing = true;
        let request = Request::KeepAlive {
            lease: l.id,
            timeout: l.renewal_timeout(),
        };
        self.send(now, request, Exchange::Renewal(lease));
    }

    pub(super) fn renewed(
        &mut self,
        now: Moment,
        lease: LeaseRef,
        sent: Moment,
        result: Result<Response, Failure>,
    ) {
        let Some(l) = self.leases.get_mut(&lease) else {
            return;
        };
        l.renewing = false;
        if !l.is_alive() {
            return;
        }
        match result {
            Ok(Response::KeptAlive { ttl }) if !ttl.is_zero() => {
                if !l.renewed(now, sent, ttl) {
                    return self.lose(now, lease, LossCause::Expired);
                }
                l.failures = 0;
                l.renew_at = l.renewal_after(sent);
                let next = l.renew_at;
                let unfresh = std::mem::take(&mut l.unfresh);
                self.lets_in(lease);
                self.at(next, Timer::Renew(lease));
                for name in unfresh {
                    self.advance(now, &name);
                }
            }
            Ok(_)
            | Err(Failure::Refused {
                kind: Refusal::LeaseNotFound,
                ..
            }) => self.ended(now, lease),
            // Says nothing about the lease: send again, the first time at once, by another endpoint (rule P30).
            Err(failure) => {
                let failures = l.failures;
                l.failures += 1;
                self.keeps_out(now, lease, sent, failure.cause());
                let again = match failures {
                    0 => now,
                    _ => now + self.pause(failures),
                };
                if let Some(l) = self.leases.get_mut(&lease) {
                    l.renew_at = again;
                }
                self.at(again, Timer::Renew(lease));
            }
        }
    }

    /// The lease is gone at etcd: its bodies are not polled from now on, and told as soon as it is known why.
    fn ended(&mut self, now: Moment, lease: LeaseRef) {
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

    fn arm_stop(&mut self, lease: LeaseRef) {
        if let Some(stop) = self.leases.get(&lease).and_then(|l| l.deadline.stop()) {
            self.at(stop, Timer::Stop(lease));
        }
    }

    /// The stop time as it was when the timer was set has come; renewals have usually moved it on.
    pub(super) fn stop(&mut self, now: Moment, lease: LeaseRef) {
        let Some(l) = self.leases.get(&lease) else {
            return;
        };
        if l.is_alive() && l.deadline.is_over(now) {
            let cause = if l.ended {
                LossCause::Revoked
            } else {
                LossCause::Expired
            };
            self.lose(now, lease, cause);
        } else {
            self.arm_stop(lease);
        }
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
