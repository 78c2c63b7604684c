//! The names of a process: how a call comes to its turn.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::core::bundle;
use crate::core::lease::LeaseRef;
use crate::core::pool::family_of;
use crate::core::queue::{Call, Queue, Queued, Slot};
use crate::core::request::{Key, Revision};
use crate::core::{Acquire, CallId, Core, Grant, Output, Owned, Refused, Timer};
use crate::site::Wait;

/// How long a lock is held before its key is watched: short sections pay nothing (rule P18).
const GUARD_AFTER: Duration = Duration::from_secs(1);

/// How long a watch stays open after the name was last wanted (rule P15).
const WARM: Duration = Duration::from_secs(5);

impl Core {
    pub(super) fn acquire(&mut self, now: Moment, acquire: Acquire) {
        let Acquire {
            call,
            mut names,
            ttl_secs,
            wait,
            record,
            holds,
        } = acquire;
        let nested = !holds.is_empty();
        let name = match names.pop() {
            Some(name) if names.is_empty() => name,
            _ => {
                let cause = Arc::from(Box::from("several names in one call: not yet"));
                return self.refuse(call, Refused::Backend(cause));
            }
        };
        if self.refuses(nested) {
            return self.refuse(call, Refused::ShuttingDown);
        }
        let queue = self
            .queues
            .entry(name.clone())
            .or_insert_with(|| Queue::new(family_of(&name)));
        let once = wait == Wait::Once;
        if once && !(queue.calls.is_empty() && matches!(queue.slot, Slot::Free)) {
            let holder = queue.holder();
            return self.refuse(call, Refused::Held { name: 0, holder });
        }
        let until = match wait {
            Wait::For(wait) => Some(now + wait),
            Wait::Once | Wait::Forever => None,
        };
        queue.calls.push_back(Call {
            id: call,
            ttl_secs,
            record,
            since: now,
            until,
            once,
            put_once: false,
            nested,
        });
        self.calls.insert(call, name.clone());
        if let Some(until) = until {
            self.at(until, Timer::Wait(call));
        }
        self.advance(now, &name);
    }

    pub(super) fn cancel(&mut self, now: Moment, call: CallId) {
        if let Some((name, _)) = self.withdraw(call) {
            self.calls.remove(&call);
            self.advance(now, &name);
        }
    }

    /// Takes a waiting call out of its queue.
    pub(super) fn withdraw(&mut self, call: CallId) -> Option<(Key, Call)> {
        let name = self.calls.get(&call)?.clone();
        let call = self.queues.get_mut(&name)?.remove(call)?;
        if let Some(until) = call.until {
            self.timers.remove(&(until, Timer::Wait(call.id)));
        }
        Some((name, call))
    }

    pub(super) fn wait_over(&mut self, now: Moment, call: CallId) {
        let Some((name, waiting)) = self.withdraw(call) else {
            return;
        };
        let Some(queue) = self.queues.get(&name) else {
            return;
        };
        // Silence is no answer: that nobody told us of a holder does not mean that there is one.
        let heard = queue.heard.is_some_and(|at| at >= waiting.since);
        let unheard = match queue.slot {
            _ if heard => None,
            Slot::Wanting { lease } | Slot::Putting { lease } | Slot::Doubt { lease } => {
                let trouble = self.leases.get(&lease).and_then(|l| l.trouble.clone());
                Some(match trouble {
                    Some(trouble) => trouble.cause,
                    None => Arc::from(Box::from("no answer within the wait")),
                })
            }
            _ => None,
        };
        let why = match unheard {
            Some(cause) => Refused::Backend(cause),
            None => Refused::Timeout {
                name: 0,
                holder: queue.holder(),
                waited: now - waiting.since,
            },
        };
        self.refuse(call, why);
        self.advance(now, &name);
    }

    /// Takes the next step for a name, if it is ours to take.
    pub(super) fn advance(&mut self, now: Moment, name: &Key) {
        let Some(queue) = self.queues.get(name) else {
            return;
        };
        match &queue.slot {
            Slot::Free => match queue.calls.front() {
                Some(call) => {
                    let lease = self.lease_for(now, call.ttl_secs);
                    self.want(name, lease);
                }
                None => self.retire_queue(now, name),
            },
            Slot::Wanting { lease } => {
                let lease = *lease;
                let fits = self.leases.get(&lease).map(|l| l.ttl_secs);
                if queue.calls.front().map(|call| call.ttl_secs) != fits {
                    self.free(now, name);
                }
            }
            Slot::Queued(queued) => {
                let (lease, ready) = (queued.lease, queued.ready);
                let Some(l) = self.leases.get_mut(&lease) else {
                    return;
                };
                let fits = queue
                    .calls
                    .front()
                    .is_some_and(|call| call.ttl_secs == l.ttl_secs);
                match ready {
                    _ if !fits => self.delete(now, name),
                    Some(revision) if l.is_fresh(now) => self.grant(now, name, revision),
                    Some(_) => {
                        l.unfresh.push(name.clone());
                        self.renew(now, lease);
                    }
                    None => {}
                }
            }
            Slot::Putting { .. }
            | Slot::Doubt { .. }
            | Slot::Held { .. }
            | Slot::Deleting { .. } => {}
        }
    }

    /// Queues the name to be put under this lease.
    fn want(&mut self, name: &Key, lease: LeaseRef) {
        if let (Some(queue), Some(l)) = (self.queues.get_mut(name), self.leases.get_mut(&lease)) {
            queue.slot = Slot::Wanting { lease };
            l.pending.push_back(name.clone());
        }
    }

    pub(super) fn free(&mut self, now: Moment, name: &Key) {
        if let Some(queue) = self.queues.get_mut(name) {
            queue.slot = Slot::Free;
        }
        self.advance(now, name);
    }

    /// Nobody here wants the name: forgets it, its watch a little later.
    fn retire_queue(&mut self, now: Moment, name: &Key) {
        match self.queues.get_mut(name) {
            Some(queue) if queue.watch.is_some() => {
                queue.reread_at = Some(now + WARM);
                self.at(now + WARM, Timer::Rest(name.clone()));
            }
            _ => {
                self.queues.remove(name);
            }
        }
    }

    pub(super) fn rest(&mut self, now: Moment, name: &Key) {
        let Some(queue) = self.queues.get(name) else {
            return;
        };
        let idle = matches!(queue.slot, Slot::Free) && queue.calls.is_empty();
        if idle && queue.reread_at.is_some_and(|at| at <= now) {
            if let Some(id) = queue.watch {
                self.watches.remove(&id);
                self.outputs.push_back(Output::Unwatch { id });
            }
            self.queues.remove(name);
        }
    }

    /// The head of the queue has its lock.
    fn grant(&mut self, now: Moment, name: &Key, ready: Revision) {
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        let Slot::Queued(Queued { lease, created, .. }) = queue.slot else {
            return;
        };
        let Some(l) = self.leases.get_mut(&lease) else {
            return;
        };
        let Some(call) = queue.calls.pop_front() else {
            return;
        };
        l.bodies += 1;
        let grant = Grant {
            call: call.id,
            owned: vec![Owned {
                key: bundle::own_key(&queue.family, l.id),
                created,
                revision: ready.max(created),
                handover: 0,
            }],
            deadline: l.deadline.clone(),
        };
        let guard_at = now + GUARD_AFTER;
        queue.slot = Slot::Held {
            lease,
            created,
            call: call.id,
            seen: ready,
            guard_at,
            lost: false,
        };
        queue.owner = None;
        queue.reread_at = None;
        if let Some(until) = call.until {
            self.timers.remove(&(until, Timer::Wait(call.id)));
        }
        if queue.watch.is_none() {
            self.at(guard_at, Timer::Guard(name.clone()));
        }
        self.outputs.push_back(Output::Granted(grant));
    }
}
