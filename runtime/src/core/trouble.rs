//! etcd is not reached: calls wait for it as long as they should, and are told why then.

use crate::clock::Moment;
use crate::core::lease::{Lease, LeaseRef, Trouble};
use crate::core::mode::Mode;
use crate::core::queue::Slot;
use crate::core::request::Cause;
use crate::core::{CallId, Core, Refused, Timer};

impl Core {
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
            // Who would join the readers of a key that is held asks again when it is time to.
            if !held {
                self.advance(now, &name);
            }
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
}
