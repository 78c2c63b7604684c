//! Retention: what stays locked after its call.

use std::time::Duration;

use super::serving::CONFIRM;
use super::{Core, Retention, SLOWLY};
use crate::contender::Contender;
use crate::ids::{CallId, ContenderId, Key, LeaseId};
use crate::input::Release;
use crate::mistakes::{Mistake, mistake};
use crate::output::Refused;
use crate::request::{Failure, Kv, OpAnswer, Refusal, Request, TxnAnswer};
use crate::seat::Mode;
use crate::timers::Timer;

/// The shortest lease etcd grants, in whole seconds.
const SHORTEST: i64 = 2;

impl Core {
    /// The body of a call has ended before its time: keeps its names locked (rule P39). False if there is nothing to keep.
    pub(super) fn retain(&mut self, id: ContenderId, call: CallId, how: Release) -> bool {
        let Some(released) = self.calls.get(call) else {
            return false;
        };
        let (record, until) = (
            released.record().clone(),
            released.keep().filter(|until| *until > self.now),
        );
        let Some(contender) = self.contenders.get_mut(id) else {
            return false;
        };
        let lost = contender
            .ownership()
            .is_none_or(|ownership| ownership.is_lost());
        let sound = self
            .sessions
            .get(contender.session())
            .is_some_and(|session| session.is_alive());
        let Some(until) = until.filter(|_| {
            sound
                && !lost
                && contender.mode() != Mode::Shared
                && !mistake(Mistake::RetainedKeyDeleted)
        }) else {
            return false;
        };
        contender.retain();
        self.stops_being_observed(id);
        match how {
            Release::Confirmed => {
                self.calls.release(call);
                self.timers.set(Timer::Confirm(call), self.now + CONFIRM);
            }
            Release::Unconfirmed | Release::Lingering => drop(self.calls.remove(call)),
        }
        let retention = Retention {
            until,
            call,
            record,
            lease: None,
            moved: false,
            under_way: false,
            failures: 0,
        };
        self.retaining.insert(id);
        self.retentions.insert(id, retention);
        self.retain_on(id);
        true
    }

    /// Takes the next step of a retention: asks for its lease, puts the keys under it, or ends it.
    pub(super) fn retain_on(&mut self, id: ContenderId) {
        let Some(kept) = self.retentions.get_mut(&id) else {
            return;
        };
        if kept.until <= self.now {
            return self.retention_over(id);
        }
        self.timers.set(Timer::Retention(id), kept.until);
        if kept.moved || kept.under_way {
            return;
        }
        kept.under_way = true;
        match kept.lease {
            None => {
                let rest = kept.until - self.now;
                let ttl_secs = i64::try_from(rest.as_millis().div_ceil(1000))
                    .unwrap_or(i64::MAX)
                    .max(SHORTEST);
                self.send(Request::Grant(ttl_secs), super::Exchange::Reserve(id));
            }
            Some(lease) => {
                let record = kept.record.clone();
                let contender = self.contenders.get(id);
                let keys = contender.into_iter().flat_map(|it| {
                    it.keys()
                        .filter_map(|key| Some((key.clone(), it.created()?)))
                });
                let txn = crate::transactions::retain(&keys.collect::<Vec<_>>(), lease, &record);
                self.send(Request::Txn(txn), super::Exchange::Retain(id, lease));
            }
        }
    }

    /// The time of a retention is over, or all its keys are gone: what is left goes.
    pub(super) fn retention_over(&mut self, id: ContenderId) {
        let Some(kept) = self.retentions.remove(&id) else {
            return;
        };
        self.timers.cancel(&Timer::Retention(id));
        if !kept.moved {
            self.retained_moved(id);
            // Nothing hangs on its lease that is not to go.
            self.revocations.extend(kept.lease);
        }
        self.confirming.insert(id, kept.call);
        let empty = |it: &Contender| it.parts().is_empty();
        match self.contenders.get(id).is_some_and(empty) {
            true => self.remove(id),
            false => self.delete(id),
        }
    }

    /// The session its keys were under has done its duty.
    pub(super) fn retained_moved(&mut self, id: ContenderId) {
        self.retaining.remove(&id);
        let Some(session_id) = self.contenders.get(id).map(Contender::session) else {
            return;
        };
        if let Some(session) = self.sessions.get_mut(session_id) {
            session.drop_body();
            session.detach(self.now, id);
        }
        self.revoke_if_over(session_id);
    }

    /// The lease of a retention is there, or is not.
    pub(super) fn reserved(
        &mut self,
        id: ContenderId,
        result: Result<(LeaseId, Duration), Failure>,
    ) {
        let Some(kept) = self.retentions.get_mut(&id) else {
            return self.revocations.extend(result.map(|(lease, _)| lease));
        };
        kept.under_way = false;
        match result {
            Ok((lease, _)) => {
                kept.lease = Some(lease);
                self.retain_on(id);
            }
            Err(failure) => self.retain_later(id, failure),
        }
    }

    /// The keys of a retention have its lease, or have not.
    pub(super) fn retained(
        &mut self,
        id: ContenderId,
        lease: LeaseId,
        result: Result<TxnAnswer, Failure>,
    ) {
        let Some(kept) = self.retentions.get_mut(&id) else {
            return self.revocations.push(lease);
        };
        kept.under_way = false;
        let answer = match result {
            Ok(answer) => answer,
            Err(failure) => {
                if matches!(failure, Failure::Refused(Refusal::LeaseNotFound, _)) {
                    kept.lease = None;
                }
                return self.retain_later(id, failure);
            }
        };
        if answer.succeeded {
            kept.moved = true;
            let call = kept.call;
            self.confirm(call, Ok(()));
            return self.retained_moved(id);
        }
        // Another client has taken keys away: the promise is about the others.
        let Some(contender) = self.contenders.get(id) else {
            return;
        };
        let created = contender.created();
        let found = answer.answers.into_iter().map(OpAnswer::first);
        let gone =
            |(_, kv): &(&Key, Option<Kv>)| kv.as_ref().map(|kv| kv.create_revision) != created;
        let gone: Vec<Key> = contender
            .keys()
            .zip(found)
            .filter(gone)
            .map(|(key, _)| key.clone())
            .collect();
        match self.contenders.drop_parts(id, &gone) {
            0 => self.retention_over(id),
            _ => self.retain_on(id),
        }
    }

    /// A step of a retention failed: it is tried again, as long as there is time.
    pub(super) fn retain_later(&mut self, id: ContenderId, failure: Failure) {
        let Some(kept) = self.retentions.get_mut(&id) else {
            return;
        };
        let (call, until, failures) = (kept.call, kept.until, kept.failures);
        kept.failures += 1;
        let pause = match failure {
            Failure::Refused(..) => {
                self.confirm(call, Err(Refused::by(failure)));
                self.pause(SLOWLY)
            }
            Failure::Unavailable(_) | Failure::Unknown(_) => self.pause(failures),
        };
        self.timers
            .set(Timer::Retention(id), until.min(self.now + pause));
    }
}
