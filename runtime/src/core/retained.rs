//! Names that stay locked although their call is over: `at_least` (rule P39).
//!
//! A body has ended early: its keys are put again under a lease of their own, which lasts for what is left of the time and is
//! never renewed. So they stay whatever becomes of this process, and go by themselves. Until they are there they are kept alive
//! by the lease they were under, as if the body still ran. Here their names are closed until the time is over; then the keys
//! are deleted, so that the name is free at once and not when etcd's whole seconds are over.
//!
//! The put compares create revisions alone. Sent once more it does what it did, and late, after the key has gone, nothing: it
//! needs no seal (rule P10). Nobody inherits such a key (rule P23): a call of this process waits as one of another does.

use std::sync::Arc;

use crate::clock::Moment;
use crate::core::bundle::{self, Deletion};
use crate::core::call::Stage;
use crate::core::lease::LeaseRef;
use crate::core::mode::Mode;
use crate::core::queue::{Slot, Watched};
use crate::core::request::{Failure, Key, LeaseId, Refusal, Request, Response, TxnAnswer};
use crate::core::{CallId, Core, Exchange, Output, Refused, Release, Timer};

/// The shortest lease etcd grants, in whole seconds.
const SHORTEST: i64 = 2;

/// After a refusal it is tried again as rarely as after so many failures.
const SLOWLY: u32 = 4;

/// What a call leaves locked.
#[derive(Debug)]
pub(crate) struct Retention {
    until: Moment,
    /// The keys, as they are to be deleted.
    keys: Vec<Deletion>,
    record: Arc<[u8]>,
    /// The lease they were under: this counts as a body there until they have their own.
    under: LeaseRef,
    /// The lease they are to have, and whether they have it.
    own: Option<LeaseId>,
    moved: bool,
    failures: u32,
}

impl Core {
    /// The names of this call stay locked until then, whenever its body ends; of several times the last.
    pub(super) fn keep(&mut self, call: CallId, until: Moment) {
        if let Some(holding) = self.calls.get_mut(&call) {
            // What others have with it goes with the last of them.
            let alone = holding.mode != Mode::Shared;
            holding.keep = holding.keep.max(alone.then_some(until));
        }
    }

    /// The body of a call has ended before its time: keeps its names locked. False if there is nothing to keep: a lock that was
    /// lost promises nothing.
    pub(super) fn retain(&mut self, now: Moment, call: CallId, how: Release) -> bool {
        let Some(c) = self.calls.get(&call) else {
            return false;
        };
        let (Some(until), names) = (c.keep.filter(|until| *until > now), c.names.clone()) else {
            return false;
        };
        let record = c.record.clone();
        let keys: Vec<Deletion> = names
            .iter()
            .filter_map(|name| self.kept_key(name, call))
            .collect();
        let Some(under) = keys.first().map(|key| key.lease) else {
            return false;
        };
        self.unwrite(now, call);
        self.unpublish(now, call);
        for key in &keys {
            self.close(&key.name);
        }
        if how == Release::Confirmed {
            self.expects_confirmation(now, call, 0);
        } else {
            self.calls.remove(&call);
        }
        let retention = Retention {
            until,
            keys,
            record,
            under,
            own: None,
            moved: false,
            failures: 0,
        };
        self.retentions.insert(call, retention);
        self.at(until, Timer::Retained(call));
        self.retain_on(now, call);
        true
    }

    /// The key of a name that this call holds, on a lease that is there.
    fn kept_key(&self, name: &Key, call: CallId) -> Option<Deletion> {
        let queue = self.queues.get(name)?;
        let Slot::Held {
            lease,
            created,
            call: of,
            ..
        } = queue.slot
        else {
            return None;
        };
        let l = self.leases.get(&lease).filter(|l| l.is_alive())?;
        (of == call).then(|| Deletion {
            name: name.clone(),
            key: queue.own_key(l.id),
            created,
            lease,
        })
    }

    /// Nothing is to be learned of the name, and nothing to be done, until the time is over.
    fn close(&mut self, name: &Key) {
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        if let Slot::Held { guard_at, .. } = queue.slot {
            self.timers.remove(&(guard_at, Timer::Guard(name.clone())));
        }
        queue.slot = Slot::Retained;
        if let Some(Watched { id, .. }) = queue.watch.take() {
            self.watches.remove(&id);
            self.outputs.push_back(Output::Unwatch { id });
        }
    }

    /// Takes the next step: asks for the lease, or puts the keys under it.
    pub(super) fn retain_on(&mut self, now: Moment, call: CallId) {
        let Some(kept) = self.retentions.get(&call) else {
            return;
        };
        if kept.moved || kept.until <= now {
            return;
        }
        match kept.own {
            None => {
                let rest = kept.until - now;
                let ttl_secs = i64::try_from(rest.as_millis().div_ceil(1000)).unwrap_or(i64::MAX);
                let ttl_secs = ttl_secs.max(SHORTEST);
                self.send(now, Request::Grant { ttl_secs }, Exchange::Reserve(call));
            }
            Some(lease) => {
                let txn = bundle::retain(&kept.keys, lease, &kept.record);
                self.send(now, Request::Txn(txn), Exchange::Retain(call));
            }
        }
    }

    /// The lease of their own is there; or it is not. One that nobody heard of runs out by itself.
    pub(super) fn reserved(
        &mut self,
        now: Moment,
        call: CallId,
        result: Result<Response, Failure>,
    ) {
        let Some(kept) = self.retentions.get_mut(&call) else {
            return;
        };
        match result {
            Ok(Response::Granted { lease, .. }) => {
                kept.own = Some(lease);
                self.retain_on(now, call);
            }
            Ok(_) => self.retain_later(now, call, SLOWLY),
            Err(failure) => self.not_retained(now, call, failure),
        }
    }

    /// The keys have their own lease; or they have not.
    pub(super) fn retained(
        &mut self,
        now: Moment,
        call: CallId,
        result: Result<TxnAnswer, Failure>,
    ) {
        let Some(kept) = self.retentions.get_mut(&call) else {
            return;
        };
        let answer = match result {
            Ok(answer) => answer,
            Err(Failure::Refused {
                kind: Refusal::LeaseNotFound,
                ..
            }) => {
                kept.own = None;
                return self.retain_later(now, call, 0);
            }
            Err(failure) => return self.not_retained(now, call, failure),
        };
        if answer.succeeded {
            kept.moved = true;
            let under = kept.under;
            self.confirmed(call, Ok(()));
            return self.no_body(now, under);
        }
        // Somebody has taken keys away: the promise is about the others.
        let left = bundle::undeleted(kept.keys.clone(), answer);
        let keys = std::mem::replace(&mut kept.keys, left);
        let nothing = kept.keys.is_empty();
        let gone: Vec<Key> = keys
            .iter()
            .filter(|key| !kept.keys.contains(key))
            .map(|key| key.name.clone())
            .collect();
        if nothing {
            self.retention_over(now, call);
        } else {
            self.retain_on(now, call);
        }
        for name in gone {
            self.free(now, &name);
        }
    }

    /// It failed: sent again, as long as there is time left.
    fn not_retained(&mut self, now: Moment, call: CallId, failure: Failure) {
        let Some(kept) = self.retentions.get_mut(&call) else {
            return;
        };
        kept.failures += 1;
        let failures = kept.failures;
        match failure {
            Failure::Refused { .. } => {
                self.confirmed(call, Err(Refused::by(failure)));
                self.retain_later(now, call, SLOWLY);
            }
            Failure::Unavailable(_) | Failure::Unknown(_) => {
                self.retain_later(now, call, failures - 1);
            }
        }
    }

    fn retain_later(&mut self, now: Moment, call: CallId, failures: u32) {
        let again = now + self.pause(failures);
        self.at(again, Timer::Retain(call));
    }

    /// The time is over: what is left goes.
    pub(super) fn retention_over(&mut self, now: Moment, call: CallId) {
        let Some(kept) = self.retentions.remove(&call) else {
            return;
        };
        self.timers.remove(&(kept.until, Timer::Retained(call)));
        let left = kept.keys.len();
        let mut confirm = None;
        match self.calls.get_mut(&call).map(|c| &mut c.stage) {
            Some(Stage::Releasing { .. }) if left == 0 => self.confirmed(call, Ok(())),
            Some(stage @ Stage::Releasing { .. }) => {
                *stage = Stage::Releasing { left };
                confirm = Some(call);
            }
            _ => {}
        }
        for key in kept.keys {
            if let Some(queue) = self.queues.get_mut(&key.name) {
                queue.slot = Slot::Deleting {
                    lease: key.lease,
                    created: key.created,
                    confirm,
                };
            }
            self.deletions.push_back(key);
        }
        if !kept.moved {
            self.no_body(now, kept.under);
            // Nothing hangs on it that is not to go.
            if let Some(lease) = kept.own {
                self.send(now, Request::Revoke { lease }, Exchange::Revoke);
            }
        }
    }

    /// The lease the keys were under has done its duty.
    fn no_body(&mut self, now: Moment, lease: LeaseRef) {
        if let Some(l) = self.leases.get_mut(&lease) {
            l.bodies -= 1;
        }
        self.revoke_if_done(now, lease);
    }
}
