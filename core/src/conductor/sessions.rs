//! Sessions: what they need is sent, and what etcd answers to that.

use std::collections::HashSet;
use std::time::Duration;

use super::{Core, Exchange, SLOWLY, Timer};
use crate::call::Call;
use crate::contender::{Contender, State};
use crate::ids::{CallId, ContenderId, Incarnation, LeaseId, SessionId, session_key};
use crate::loss::LossCause;
use crate::moment::Moment;
use crate::name::Name;
use crate::output::{Output, Refused};
use crate::request::{Failure, Refusal, Request, Response, TxnAnswer};
use crate::session::{LIST, Need, Session};
use crate::steps::step;
use crate::transactions::{self, READS};
use crate::view::Whose;

impl Core {
    /// Sends what sessions need: renewals even while etcd is not reached.
    pub(super) fn flush_sessions(&mut self) {
        for call in self.sessions.warmed(self.now) {
            self.outputs.push_back(Output::Ready(call));
        }
        match self.may_send() {
            true if !self.defers() => self.sessions.wake_held_back(),
            sends => self.deferred |= sends && self.sessions.has_held_back(),
        }
        loop {
            self.settle();
            let Some(id) = self.sessions.next_awake() else { return };
            step();
            // What is lost with a session is many calls'. Its timer is due, and a hand-over looks at its stop time too.
            if self.is_command && self.sessions.get(id).is_some_and(|it| it.has_to_stop(self.now)) {
                self.sessions.hold_back(id);
                continue;
            }
            while let Some(need) = self.sessions.need(id, self.now, self.may_send()) {
                self.meet(id, need);
            }
            self.settle();
            let ready = self.may_send() && self.sessions.get(id).is_some_and(Session::has_puts);
            let waits = self.waits_for_more(ready);
            if !waits {
                self.flush_puts(id);
            }
            if waits || !self.may_send() {
                self.sessions.hold_back(id);
            }
            let session = self.sessions.get(id);
            match session.and_then(|session| session.due(self.now)) {
                Some(due) => self.timers.set(Timer::Session(id), due),
                None => self.timers.cancel(&Timer::Session(id)),
            }
        }
    }

    fn meet(&mut self, id: SessionId, need: Need) {
        match need {
            Need::Grant(ttl_secs) => self.send(Request::Grant(ttl_secs), Exchange::Grant(id)),
            Need::Renew(..) if self.shutdown.has_stopped() => {}
            Need::Renew(lease, timeout) => {
                self.send(Request::KeepAlive { lease, timeout }, Exchange::Renewal(id));
            }
            Need::Barrier { key, modified, lease, suspected } => {
                let witness = suspected.then(|| self.witness(id)).flatten();
                let read = witness.as_ref().map(|(key, _)| key);
                let txn = transactions::barrier(&key, modified, lease, read);
                self.send(Request::Txn(txn), Exchange::Barrier(id, witness));
            }
            Need::List(lease) => self.send(Request::List(lease), Exchange::List(id)),
            Need::Stop => self.lose_session(id, LossCause::Expired),
            Need::Retire => self.retire(id),
        }
    }

    /// Renews a session now; if a renewal is under way, after that.
    pub(super) fn renew(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.alive(id) {
            session.hurry(self.now);
        }
    }

    /// The youngest key that calls hold under a session: if history went back to before any of them, it is not there.
    fn witness(&self, id: SessionId) -> Option<Incarnation> {
        let contenders = self.sessions.get(id)?.contenders();
        let mut contenders = contenders.rev().filter_map(|id| self.names.contender(id));
        let contender = contenders.find(|it| it.ownership().is_some())?;
        Some((contender.key.clone()?, contender.created?))
    }

    /// The keys of a session were listed, or not. What the list does not show is read: only that proves a loss.
    pub(super) fn listed(
        &mut self,
        id: SessionId,
        sent: Moment,
        result: Result<Response, Failure>,
    ) {
        let next = self.now + self.jittered(LIST);
        self.sessions.wake(id).into_iter().for_each(|session| session.listed(next));
        match result {
            Ok(Response::Listed(Some(keys))) => return self.read_unlisted(id, sent, keys),
            Err(Failure::Refused(Refusal::LeaseNotFound, _)) => self.renew(id),
            Ok(_) | Err(_) => {}
        }
        self.read_in_turn(id);
    }

    /// What calls hold under a session.
    fn held_under(&self, id: SessionId) -> impl Iterator<Item = (ContenderId, &Contender)> {
        let contenders = self.sessions.get(id).into_iter().flat_map(Session::contenders);
        contenders.filter_map(|id| {
            step();
            let contender = self.names.contender(id)?;
            contender.held().map(|_| (id, contender))
        })
    }

    /// Reads what calls held under a session when its keys were asked for, and these are not.
    fn read_unlisted(&mut self, id: SessionId, sent: Moment, keys: Vec<Vec<u8>>) {
        let keys: HashSet<Vec<u8>> = keys.into_iter().collect();
        let listed =
            |it: &Contender| it.key.as_ref().is_some_and(|key| keys.contains(key.as_bytes()));
        let held =
            self.held_under(id).filter(|(_, it)| it.held().is_some_and(|held| held.since <= sent));
        let missing: Vec<ContenderId> =
            held.filter(|(_, it)| !listed(it)).map(|(id, _)| id).collect();
        missing.into_iter().for_each(|id| self.want_read(id, false));
    }

    /// Reads what calls hold under a session, and is watched, though it could not be listed: all of it until the next list.
    fn read_in_turn(&mut self, id: SessionId) {
        let guarded = self
            .held_under(id)
            .filter(|(it, _)| self.view.get(it.name, Whose::Holds(id)).is_some());
        let guarded: Vec<ContenderId> = guarded.map(|(id, _)| id).collect();
        let reads = guarded.chunks(READS);
        let pause = LIST / u32::try_from(reads.len()).unwrap_or(u32::MAX).max(1);
        let mut next = self.now;
        for together in reads {
            next = next + pause;
            together.iter().for_each(|id| self.read_at(*id, next));
        }
    }

    /// etcd was wiped, or restored from a snapshot (rule P35): all ownership that is older is lost.
    pub(super) fn lose_history(&mut self) {
        let opened = self.sessions.iter().filter(|(_, it)| it.has_opened());
        for id in opened.map(|(id, _)| id).collect::<Vec<_>>() {
            self.lose_session(id, LossCause::Wiped);
        }
        // Watches wait for revisions that the new history may not reach for days.
        for (watch, name) in self.view.close_all() {
            self.outputs.push_back(Output::Unwatch(watch));
            self.names.touch(name);
        }
    }

    /// A lease was granted, or not.
    pub(super) fn granted(
        &mut self,
        id: SessionId,
        sent: Moment,
        result: Result<Response, Failure>,
    ) {
        let warms = self.sessions.first_warming().is_some();
        let Some(session) = self.sessions.wake(id) else {
            // A shutdown has ended it.
            if let Ok(Response::Granted { lease, .. }) = result {
                self.sessions.revoke([lease]);
            }
            return;
        };
        match result {
            Ok(Response::Granted { lease, ttl }) => {
                let key = session_key(&self.root, lease);
                session.granted(self.now, sent, (lease, ttl), key);
                self.sessions.leases.insert(lease);
            }
            Err(failure @ Failure::Refused(..)) => self.give_up_session(id, &Refused::by(failure)),
            // A grant that was carried out unseen runs out by itself: nothing was put under it. The next call asks anew.
            Ok(_) | Err(_) if session.is_unused() && !warms => {
                self.sessions.end(id);
            }
            Ok(_) | Err(_) => {
                let failures = session.renewal_failures();
                let pause = self.pause(failures);
                let session = self.sessions.get_mut(id);
                session.into_iter().for_each(|it| it.renewal_failed(self.now, pause));
            }
        }
    }

    /// A session cannot be had: refuses all calls that wait for it, or for the names of its contenders with its TTL. These would
    /// meet the same.
    fn give_up_session(&mut self, id: SessionId, why: &Refused) {
        let Some(session) = self.sessions.end(id) else { return };
        let ttl_secs = session.ttl_secs();
        let mut calls: Vec<CallId> = Vec::new();
        for id in session.contenders() {
            let waiters = self.names.get(id.name).into_iter().flat_map(Name::waiters);
            let same = |call: &CallId| {
                self.calls.get(*call).is_some_and(|it: &Call| it.wish.ttl_secs == ttl_secs)
            };
            calls.extend(waiters.filter(same));
            self.remove(id);
        }
        for call in calls {
            self.refuse(call, why.clone());
        }
        self.refuse_warming(self.now, Some(ttl_secs), why);
    }

    /// A renewal was answered, or not (rules P28, P30).
    pub(super) fn renewed(
        &mut self,
        id: SessionId,
        sent: Moment,
        result: Result<Response, Failure>,
    ) {
        let failures = match &result {
            Err(Failure::Refused(..)) => SLOWLY,
            _ => self.sessions.get(id).map_or(0, Session::renewal_failures),
        };
        let pause = self.pause(failures);
        let Some(session) = self.sessions.alive(id) else { return };
        let (ttl, stale) = match result {
            Ok(Response::KeptAlive { ttl, stale, .. }) => (ttl, stale),
            Err(Failure::Refused(Refusal::LeaseNotFound, _)) => (Duration::ZERO, false),
            Ok(_) | Err(_) => return session.renewal_failed(self.now, pause),
        };
        if ttl.is_zero() {
            return self.lose_session(id, LossCause::Gone);
        }
        if stale {
            session.bar(self.now, true); // a write finds out
        }
        match session.renewed(self.now, sent, ttl) {
            Some(names) => names.into_iter().for_each(|name| self.names.touch(name)),
            None => self.lose_session(id, LossCause::Expired),
        }
    }

    /// A lease was revoked; or that had no answer, and is sent again: its keys would stand in the way for a TTL (rule P36).
    pub(super) fn revoked(&mut self, lease: LeaseId, result: &Result<Response, Failure>) {
        let unanswered = matches!(result, Err(Failure::Unavailable(_) | Failure::Unknown(_)));
        if unanswered && !self.shutdown.is_finished() {
            self.sessions.revoke([lease]);
        }
    }

    /// The session is not to be relied on any more: its bodies stop, its waiters queue again under another (rule P28).
    pub(super) fn lose_session(&mut self, id: SessionId, cause: LossCause) {
        if let Some(cause) = self.sessions.lose(id, cause) {
            self.leave_session(id, Some(cause));
        }
    }

    /// The session takes no acquisitions any more, but keeps its bodies (rule P10).
    pub(super) fn retire(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.alive(id).filter(|session| session.accepts()) {
            session.retire();
            self.leave_session(id, None);
        }
    }

    fn leave_session(&mut self, id: SessionId, lost: Option<LossCause>) {
        self.sessions.withdraw(id);
        let contenders = self.sessions.get(id).into_iter().flat_map(Session::contenders);
        for contender in contenders.collect::<Vec<_>>() {
            self.leave_contender(contender, lost);
        }
        self.revoke_if_over(id);
    }

    /// The session of a contender is lost, or retired.
    fn leave_contender(&mut self, id: ContenderId, lost: Option<LossCause>) {
        match (self.names.contender(id), lost) {
            (Some(Contender { state: State::Pending { .. }, .. }), _) => self.remove(id),
            (Some(Contender { state: State::Putting | State::Unsettled, .. }), _) => {
                self.detach(id)
            }
            // It must not stand in the way of the next one; its lease may live on, with its bodies or because it was lost only here.
            (Some(Contender { state: State::Waiting, .. }), _) => {
                self.detach(id);
                self.delete(id);
            }
            (Some(Contender { state: State::Held(_), .. }), Some(cause)) => {
                self.lose_contender(id, cause)
            }
            (Some(Contender { state: State::Parting, .. }), Some(_)) => self.detach(id),
            // Bodies and deletes go on under a retired session.
            (Some(_), None) | (None, _) => {}
        }
    }

    /// Revokes a session that is of no more use, once no body runs under it (rule P26).
    pub(super) fn revoke_if_over(&mut self, id: SessionId) {
        if !self.sessions.get(id).is_some_and(Session::is_over) {
            return;
        }
        self.timers.cancel(&Timer::Session(id));
        // What is there goes with the lease.
        let ended = self.sessions.end(id);
        for contender in ended.into_iter().flat_map(|mut session| session.take_ambiguous()) {
            self.remove(contender);
        }
    }

    /// A barrier was answered, or not (rule P10).
    pub(super) fn barrier_answered(
        &mut self,
        id: SessionId,
        witness: Option<Incarnation>,
        result: Result<TxnAnswer, Failure>,
    ) {
        let slowly = self.now + self.pause(SLOWLY);
        let Some(session) = self.sessions.alive(id) else { return };
        let (modified, read) = match (result, session.lease()) {
            (Ok(answer), Some(lease)) => transactions::barred(answer, lease),
            (Ok(_), None) => return,
            (Err(Failure::Refused(Refusal::LeaseNotFound, _)), _) => {
                return self.lose_session(id, LossCause::Gone);
            }
            (Err(failure @ Failure::Refused(..)), _) if !session.has_opened() => {
                let why = match Refused::by(failure) {
                    Refused::PermissionDenied(cause) => Refused::SessionDenied(cause),
                    why => why,
                };
                return self.give_up_session(id, &why);
            }
            (Err(failure), _) => {
                let refused = matches!(failure, Failure::Refused(..));
                let again = if refused { slowly } else { self.now };
                if session.barrier_failed(self.now, again, refused, witness.is_some()) {
                    self.retire(id);
                }
                return;
            }
        };
        session.barrier_answered(self.now, modified);
        // None of these puts can apply any more. Those that did are taken back.
        for contender in session.take_ambiguous() {
            self.delete(contender);
        }
        if let Some((_, created)) = witness
            && read != Some(created)
        {
            // It may have gone meanwhile; or history went back to before it, and others are not there either.
            let contenders = self.sessions.get(id).into_iter().flat_map(Session::contenders);
            for contender in contenders.collect::<Vec<_>>() {
                self.want_read(contender, false);
            }
        }
        if modified.is_none() {
            self.retire(id); // the session key was deleted, or put by another client
            self.renew(id); // perhaps with its lease
        }
    }
}
