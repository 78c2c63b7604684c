//! The leases of a process: one for each TTL in use, opened when first wanted (rule P27). How they are kept is in
//! [`renewals`](super::renewals), how they end in [`losses`](super::losses).
//!
//! Where thousands of locks are held they are spread over a few: what a lease takes with it when it is lost is bounded, and
//! so is what etcd has to keep together.

use crate::clock::Moment;
use crate::core::bundle;
use crate::core::call::Bid;
use crate::core::lease::{Lease, LeaseRef, State};
use crate::core::place;
use crate::core::queue::Slot;
use crate::core::request::{Failure, Request, Response};
use crate::core::{CallId, Core, Exchange, LEASES, Output, Refused, Timer, steps};

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
    pub(super) fn unpool(&mut self, ttl_secs: i64, lease: LeaseRef) {
        if let Some(leases) = self.pool.get_mut(&ttl_secs) {
            leases.retain(|of| *of != lease);
            if leases.is_empty() {
                self.pool.remove(&ttl_secs);
            }
        }
    }

    /// Whether nothing hangs on a lease, and calls have another one.
    pub(super) fn is_spare(&self, lease: LeaseRef) -> bool {
        let Some(l) = self.leases.get(&lease) else {
            return false;
        };
        let first = self.pool.get(&l.ttl_secs).and_then(|leases| leases.first());
        l.state == State::Open
            && l.bodies + l.pending.len() + l.in_flight + l.warming.len() == 0
            && first.is_some_and(|first| *first != lease)
            && !self.queues.values().any(|queue| {
                steps::count(1);
                queue.slot.lease() == Some(lease)
            })
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
}
