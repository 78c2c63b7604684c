//! Answers: what is sent for sessions and contenders, and what etcd's answers and events lead to.
//!
//! Sessions, puts and deletes come first, then reads and watches. `None` says that what a method is about is gone.

use super::{Core, Exchange, SLOWLY};
use crate::calls::Call;
use crate::contender::{Contender, State};
use crate::ids::{
    ContenderId, Incarnation, Key, LeaseId, Revision, SessionId, WatchId, contends, session_key,
    value_of,
};
use crate::loss::LossCause;
use crate::moment::Moment;
use crate::observe::{GUARD_AFTER, RELIES, RETAINED, Read, Seen, TOGETHER, WAITER, Whose};
use crate::output::{Output, Owner, Refused};
use crate::ownership::Ownership;
use crate::part::{Own, Part};
use crate::request::{Event, Failure, Kv, Refusal, Request, Response, TxnAnswer, WatchEvent};
use crate::seat::Seat;
use crate::session::{LIST, Need, Session};
use crate::steps::step;
use crate::timers::Timer;
use crate::transactions::{self, Barred, Deletion, Description, LOCKS, Placed, Placement, READS};
use crate::wait_queue::WaitQueue;
use std::collections::HashSet;
use std::time::Duration;

/// Sessions, and what is put and deleted under them.
impl Core {
    /// Sends what sessions need: renewals even while etcd is not reached.
    pub(super) fn flush_sessions(&mut self) {
        self.serve_warming();
        match self.may_send() {
            true if !self.deferring => self.sessions.wake_held_back(),
            sends => self.deferred |= sends && self.sessions.has_held_back(),
        }
        while let Some(id) = self.sessions.next_awake() {
            step();
            while let Some(need) = self.sessions.need(id, self.now, self.may_send()) {
                self.meet(id, need);
            }
            self.take_steps();
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
            Need::Stop => {
                self.settle_missing(id, self.now);
                self.lose_session(id, LossCause::Expired);
            }
            Need::Retire => self.retire(id),
        }
    }

    /// Renews a session now; if a renewal is under way, after that.
    pub(super) fn renew(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.alive(id) {
            session.hurry(self.now);
        }
    }

    /// Sends the puts of a session that are ready.
    fn flush_puts(&mut self, id: SessionId) -> Option<()> {
        while self.may_send() {
            let session = self.sessions.get_mut(id).filter(|it| it.is_open())?;
            let (fence, lease) = (session.fence()?, session.lease()?);
            let again = session.puts().goes_again();
            let (next, tries) = session.puts().next(|id| self.contenders.pending(*id))?;
            let mut placements = Vec::new();
            for contender in &next {
                self.contenders.sent(*contender, lease);
                placements.extend(self.placements(*contender));
            }
            let deletions = match tries || again {
                true => Vec::new(),
                false => self.deletions_with_puts(placements.len()),
            };
            let before = transactions::delete(&self.root, &deletions);
            let txn = transactions::put(&fence, lease, &placements, tries, before);
            self.send(Request::Txn(txn), Exchange::Put(id, next, deletions));
        }
        Some(())
    }

    /// Takes the deletions that go in one transaction with so many puts (rule P7).
    fn deletions_with_puts(&mut self, puts: usize) -> Vec<Deletion> {
        // What has lingered would soon be deleted in a transaction of its own: a commit more.
        self.delete_lingered();
        let alive = |id| self.sessions.get(id).is_some_and(|it| !it.is_lost());
        let likely = |it: &Deletion| it.created.is_some() && alive(it.session);
        let room = LOCKS.saturating_sub(puts);
        self.batch.next_with_puts(room, likely)
    }

    /// What is put for a contender.
    fn placements(&self, id: ContenderId) -> Vec<Placement> {
        let Some(contender) = self.contenders.get(id) else {
            return Vec::new();
        };
        let keys: Vec<Key> = contender.keys().cloned().collect();
        let placement = |part: &Part| Placement {
            key: part.key.clone(),
            family: part.family.clone(),
            record: value_of(contender.record(), &part.key, &keys),
            all: part.seat != Seat::Exclusive || self.observe.is_watched(&part.name),
        };
        contender.parts().iter().map(placement).collect()
    }

    /// The keys of a session were listed, or not. What the list does not show is read: only that proves a loss.
    pub(super) fn listed(
        &mut self,
        id: SessionId,
        sent: Moment,
        result: Result<Response, Failure>,
    ) -> Option<()> {
        let next = self.now + self.jittered(LIST);
        self.sessions.wake(id)?.listed(next);
        match result {
            Ok(Response::Listed(Some(keys))) => return self.read_unlisted(id, sent, keys),
            Err(Failure::Refused(Refusal::LeaseNotFound, _)) => self.renew(id),
            Ok(_) | Err(_) => {}
        }
        self.read_in_turn(id)
    }

    /// Reads what calls held under a session when its keys were asked for, and these are not.
    fn read_unlisted(&mut self, id: SessionId, sent: Moment, keys: Vec<Vec<u8>>) -> Option<()> {
        let keys: HashSet<Vec<u8>> = keys.into_iter().collect();
        for id in self.sessions.get(id)?.contenders() {
            step();
            let contender = self.contenders.get(id);
            let held = |it: &&Contender| it.held().is_some_and(|held| held.got() <= sent);
            let listed = |key: &Key| keys.contains(key.as_bytes());
            if contender.filter(held).is_some_and(|it| !it.keys().all(listed)) {
                self.observe.read(id, false);
            }
        }
        Some(())
    }

    /// Reads what calls hold under a session, and is watched, though it could not be listed: all of it until the next list.
    fn read_in_turn(&mut self, id: SessionId) -> Option<()> {
        let guarded = |id: &ContenderId| {
            step();
            let held = self.contenders.get(*id).filter(|it| it.held().is_some());
            held.is_some_and(|contender| self.is_guarded(contender))
        };
        let contenders = self.sessions.get(id)?.contenders();
        let guarded: Vec<ContenderId> = contenders.filter(guarded).collect();
        let reads = guarded.chunks(READS);
        let pause = LIST / u32::try_from(reads.len()).unwrap_or(u32::MAX).max(1);
        let mut next = self.now;
        for together in reads {
            next = next + pause;
            for id in together {
                self.timers.set_by(Timer::Read(*id), next);
            }
        }
        Some(())
    }

    /// The youngest key that calls hold under a session: if history went back to before any of them, it is not there.
    fn witness(&self, id: SessionId) -> Option<Incarnation> {
        let contenders = self.sessions.get(id)?.contenders();
        let mut contenders = contenders.rev().filter_map(|id| self.contenders.get(id));
        let contender = contenders.find(|it| it.ownership().is_some())?;
        Some((contender.keys().next()?.clone(), contender.created()?))
    }

    /// etcd was wiped, or restored from a snapshot (rule P35): all ownership that is older is lost.
    pub(super) fn lose_history(&mut self) {
        let opened = self.sessions.iter().filter(|(_, it)| it.fence().is_some() || !it.accepts());
        for id in opened.map(|(id, _)| id).collect::<Vec<_>>() {
            self.lose_session(id, LossCause::Wiped);
        }
        // Watches wait for revisions that the new history may not reach for days.
        for (id, name) in self.observe.close_all() {
            self.outputs.push_back(Output::Unwatch(id));
            self.work.push(&name);
        }
    }

    /// A lease was granted, or not.
    pub(super) fn granted(
        &mut self,
        id: SessionId,
        sent: Moment,
        result: Result<(LeaseId, Duration), Failure>,
    ) {
        let Some(session) = self.sessions.wake(id) else {
            // A shutdown has ended it.
            return self.sessions.revoke(result.ok().map(|(lease, _)| lease));
        };
        match result {
            Ok((lease, ttl)) => {
                let key = session_key(&self.root, lease);
                session.granted(self.now, sent, (lease, ttl), key);
            }
            Err(failure @ Failure::Refused(..)) => {
                self.give_up_session(id, &Refused::by(failure));
            }
            // A grant that was carried out unseen runs out by itself: nothing was put under it. The next call asks anew.
            Err(_) if session.contenders().next().is_none() => drop(self.sessions.end(id)),
            Err(_) => {
                let pause = self.pause(self.exchanges.failures());
                if let Some(session) = self.sessions.get_mut(id) {
                    session.renewal_failed(self.now, pause);
                }
            }
        }
    }

    /// A session cannot be had: refuses all calls that wait for it, or for the names of its contenders with its TTL. These would meet
    /// the same.
    fn give_up_session(&mut self, id: SessionId, why: &Refused) {
        let Some(session) = self.sessions.end(id) else { return };
        let ttl_secs = session.ttl_secs();
        let mut calls = Vec::new();
        for id in session.contenders() {
            let names = self.contenders.get(id).into_iter().flat_map(|it| it.names().iter());
            let waiters = names.filter_map(|name| self.queues.get(name));
            let waiters = waiters.flat_map(WaitQueue::waiters);
            let purpose = |call| self.calls.get(call).map(Call::purpose);
            calls.extend(
                waiters.filter(|of| purpose(*of).is_some_and(|it| it.ttl_secs == ttl_secs)),
            );
            self.remove(id);
        }
        for call in calls {
            self.refuse(call, why.clone());
        }
        self.refuse_warming(why, |it| it.ttl_secs == ttl_secs);
    }

    /// A renewal was answered, or not (rules P28, P30). `lags`: by a member that lags, or an etcd that has lost its history.
    pub(super) fn renewed(
        &mut self,
        id: SessionId,
        sent: Moment,
        lags: bool,
        result: Result<Response, Failure>,
    ) {
        let pause = self.pause_after(&result);
        let Some(session) = self.sessions.alive(id) else { return };
        match result {
            Ok(Response::KeptAlive { ttl, .. }) if !ttl.is_zero() => {
                if lags {
                    session.bar(self.now, true); // a write finds out
                }
                match session.renewed(self.now, sent, ttl) {
                    Some(names) => names.iter().for_each(|name| self.work.push(name)),
                    None => return self.lose_session(id, LossCause::Expired),
                }
            }
            Ok(Response::KeptAlive { .. }) if lags => {
                return self.lose_session(id, LossCause::Wiped);
            }
            Ok(Response::KeptAlive { .. }) | Err(Failure::Refused(Refusal::LeaseNotFound, _)) => {
                return self.lose_session(id, LossCause::Revoked);
            }
            Ok(_) | Err(_) => session.renewal_failed(self.now, pause),
        }
        self.settle_missing(id, sent);
    }

    /// Keys missing by `sent` count as deleted alone, without their lease. A renewal sent then has shown the lease alive, or
    /// failed; or the deadline of the session is over.
    fn settle_missing(&mut self, id: SessionId, sent: Moment) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        let (gone, others) = session.take_missing(sent);
        for contender in gone {
            self.lose_contender(contender, Some(LossCause::Deleted));
        }
        if others {
            self.renew(id);
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
    fn retire(&mut self, id: SessionId) {
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
    fn leave_contender(&mut self, id: ContenderId, lost: Option<LossCause>) -> Option<()> {
        match (self.contenders.get(id)?.state(), lost) {
            (State::Pending { .. }, _) => self.remove(id),
            (State::Creating | State::Ambiguous, _) => self.detach(id),
            // It must not stand in the way of the next one; its lease may live on, with its bodies or because it was lost only here.
            (State::Waiting { .. }, _) => {
                self.detach(id);
                self.delete(id);
            }
            (State::Owned(_), Some(_)) => self.lose_contender(id, lost)?,
            (State::Deleting, Some(cause)) => {
                self.confirm(id, Err(Refused::Lost { cause }));
                self.detach(id);
            }
            // Nothing to do: a retention finds out by itself which keys are left; bodies and deletes go on under a retired
            // session.
            (State::Retained(_), _) | (State::Owned(_) | State::Deleting, None) => {}
        }
        Some(())
    }

    /// The calls that hold a contender have lost it. Without a cause they are only stopped: a renewal shows the cause.
    fn lose_contender(&mut self, id: ContenderId, cause: Option<LossCause>) -> Option<()> {
        let contender = self.contenders.get_mut(id)?;
        let names = contender.names().clone();
        let ownership = contender.ownership_mut()?;
        ownership.lose();
        for call in ownership.holders().collect::<Vec<_>>() {
            match cause {
                Some(cause) => self.lose_call(call, cause),
                None => self.outputs.push_back(Output::Stopped(call)),
            }
        }
        self.linger_over(id);
        names.iter().for_each(|name| self.work.push(name));
        Some(())
    }

    /// Revokes a session that is of no more use, once no body runs under it (rule P26).
    pub(super) fn revoke_if_over(&mut self, id: SessionId) {
        if self.sessions.get(id).is_some_and(Session::is_over) {
            // What is there goes with the lease.
            for contender in self.ambiguous(id) {
                self.remove(contender);
            }
            self.sessions.end(id);
            self.timers.cancel(&Timer::Session(id));
        }
    }

    /// The contenders of a session whose put had no answer.
    fn ambiguous(&self, id: SessionId) -> Vec<ContenderId> {
        let contenders = self.sessions.get(id).into_iter().flat_map(Session::contenders);
        let state = |id| self.contenders.get(id).map(Contender::state);
        contenders.filter(|id| matches!(state(*id), Some(State::Ambiguous))).collect()
    }

    /// A barrier was answered, or not (rule P10). `witness`: the held key that it was to read.
    pub(super) fn barrier_answered(
        &mut self,
        id: SessionId,
        witness: Option<Incarnation>,
        result: Result<TxnAnswer, Failure>,
    ) {
        let slowly = self.now + self.pause(SLOWLY);
        let session = self.sessions.alive(id);
        let Some((session, lease)) = session.and_then(|it| it.lease().map(|lease| (it, lease)))
        else {
            return;
        };
        let failure = match result {
            Ok(answer) => {
                let barred = transactions::barred(answer, lease);
                session.barrier_answered(self.now, barred.modified);
                return self.barred(id, witness, &barred);
            }
            Err(failure) => failure,
        };
        let refused = matches!(failure, Failure::Refused(..));
        if matches!(failure, Failure::Refused(Refusal::LeaseNotFound, _)) {
            self.lose_session(id, LossCause::Revoked);
        } else if refused && session.accepts() && session.fence().is_none() {
            let why = match Refused::by(failure) {
                Refused::PermissionDenied(cause) => Refused::SessionDenied(cause),
                why => why,
            };
            self.give_up_session(id, &why);
        } else {
            session.bar(self.now, witness.is_some()); // that was not shown
            let again = if refused { slowly } else { self.now };
            if session.barrier_failed(self.now, again, refused) {
                self.retire(id);
            }
        }
    }

    /// None of the puts before a barrier can apply any more. Those that did are taken back.
    fn barred(&mut self, id: SessionId, witness: Option<Incarnation>, barred: &Barred) {
        for contender in self.ambiguous(id) {
            self.delete(contender);
        }
        if witness.is_some_and(|(_, created)| barred.read != Some(created)) {
            // It may have gone meanwhile; or history went back to before it, and others are not there either.
            let contenders = self.sessions.get(id).into_iter().flat_map(Session::contenders);
            contenders.for_each(|contender| self.observe.read(contender, false));
        }
        if barred.modified.is_none() {
            self.retire(id); // the session key was deleted, or put by another client
            self.renew(id); // perhaps with its lease
        }
    }

    /// A transaction of puts, and perhaps of deletions, was answered, or not (rules P8 to P11).
    pub(super) fn put(
        &mut self,
        session: SessionId,
        ids: Vec<ContenderId>,
        deletions: Vec<Deletion>,
        result: Result<TxnAnswer, Failure>,
    ) -> Option<()> {
        if let Some(session) = self.sessions.wake(session) {
            session.puts().done(ids.len());
        }
        match result {
            Ok(answer) if answer.succeeded => {
                let revision = answer.revision;
                let put = ids.iter().filter_map(|id| self.contenders.get(*id));
                let keys = put.map(|it| it.parts().len()).sum();
                let mut placed = transactions::placed(answer, keys);
                for id in ids {
                    self.placed(id, revision, &mut placed);
                }
                self.are_gone(deletions);
                Some(())
            }
            // The session key is not as it was, or a key to be deleted is not: the puts, sent again, show which.
            Ok(answer) if !deletions.is_empty() => {
                self.put_again(session, ids, false);
                self.deleted(deletions, Ok(answer));
                None
            }
            Ok(answer) => {
                let tried = ids.first().copied().filter(|_| !answer.answers.is_empty());
                self.put_again(session, ids, false);
                match tried {
                    Some(id) => self.tried(id, answer),
                    None => {
                        // The session key is not as it was.
                        let session = self.sessions.get_mut(session);
                        session.map(|it| it.bar(self.now, false))
                    }
                }
            }
            // For a put or for a deletion: sent again apart, they show which (rule P9).
            Err(Failure::Refused(Refusal::PermissionDenied | Refusal::Other, _))
                if !deletions.is_empty() =>
            {
                self.put_again(session, ids, false);
                self.batch.delete_again(deletions);
                None
            }
            Err(failure) => {
                self.batch.delete_again(deletions);
                self.put_failed(session, ids, failure)
            }
        }
    }

    /// The put of a contender was applied.
    fn placed(
        &mut self,
        id: ContenderId,
        revision: Revision,
        placed: &mut impl Iterator<Item = Placed>,
    ) -> Option<()> {
        let now = self.now;
        let contender = self.contenders.get_mut(id)?;
        for at in 0..contender.parts().len() {
            let Placed { previous, found } = placed.next()?;
            let created = previous.unwrap_or(revision);
            if at == 0 {
                contender.created_at(now, created);
            }
            let part = contender.parts().get(at)?;
            if let Some(queue) = self.queues.get_mut(&part.name) {
                let own = part.key.as_bytes();
                let foreign = |kv: &Kv| kv.key != own && contends(&part.family, &kv.key);
                queue.see(now, found.iter().any(foreign));
            }
            contender.placed(at, created, revision, &found);
        }
        if contender.is_detached() {
            self.delete(id);
        }
        self.watch_predecessors(id, revision)
    }

    /// A single try has met keys below its names (rule P11).
    fn tried(&mut self, id: ContenderId, answer: TxnAnswer) -> Option<()> {
        let contender = self.contenders.get(id)?;
        self.queues.hear(contender.names(), self.now);
        let families = contender.parts().iter().map(|part| &part.family);
        let owner = transactions::owner(answer, families);
        let call = self.served_by(id)?;
        self.calls.get(call).filter(|call| call.is_try())?;
        // No owner: the oldest key of each name lies deeper, its owner has gone, or the session key changed. The core puts
        // again, plainly.
        let (name, kv) = owner?;
        let owner = Some(self.owner_of(kv));
        self.refuse(call, Refused::Held { name, owner });
        Some(())
    }

    /// Nothing of a put was applied: those of its contenders that are still wanted are put again, perhaps in `halves`.
    fn put_again(&mut self, session: SessionId, ids: Vec<ContenderId>, halves: bool) {
        let mut wanted = Vec::new();
        for id in ids {
            let Some(contender) = self.contenders.get_mut(id) else {
                continue;
            };
            contender.unsent();
            contender.names().iter().for_each(|name| self.work.push(name));
            match contender.is_detached() {
                true => self.remove(id),
                false => wanted.push(id),
            }
        }
        if let Some(session) = self.sessions.get_mut(session) {
            session.puts().again(wanted, halves);
        }
    }

    /// A put has no answer, or was refused.
    fn put_failed(
        &mut self,
        session: SessionId,
        ids: Vec<ContenderId>,
        failure: Failure,
    ) -> Option<()> {
        match failure {
            Failure::Unknown(_) => {
                for id in ids {
                    let Some(session) = self.sessions.get_mut(session) else {
                        self.remove(id); // it goes with its lease
                        continue;
                    };
                    session.bar(self.now, false);
                    self.contenders.ambiguous(id);
                }
            }
            Failure::Unavailable(_) => self.put_again(session, ids, false),
            Failure::Refused(Refusal::LeaseNotFound, _) => {
                self.put_again(session, ids, false);
                self.lose_session(session, LossCause::Revoked);
            }
            Failure::Refused(kind, _) => {
                // Nothing comes later, but the keys may be there (rule P34).
                let applied = kind == Refusal::NoSpace;
                if ids.len() > 1 && !applied {
                    // One bad name fails all: the halves go their own ways, but no group is torn (rules P9, P13).
                    self.put_again(session, ids, true);
                    return None;
                }
                let why = Refused::by(failure);
                for id in ids {
                    let served = self.served_by(id);
                    if applied {
                        self.contenders.ambiguous(id);
                        self.delete(id);
                    } else {
                        self.remove(id);
                    }
                    served.into_iter().for_each(|call| self.refuse(call, why.clone()));
                }
            }
        }
        Some(())
    }

    /// Deletes were answered, or not (rules P24, P34).
    pub(super) fn deleted(
        &mut self,
        mut deletions: Vec<Deletion>,
        result: Result<TxnAnswer, Failure>,
    ) {
        let gone = match result {
            Ok(answer) => {
                transactions::deleted(&mut deletions, answer);
                let left = |deletion: &Deletion| !deletion.keys.is_empty();
                let (left, gone): (Vec<_>, Vec<_>) = deletions.into_iter().partition(left);
                self.batch.delete_again(left);
                gone
            }
            Err(Failure::Unavailable(_) | Failure::Unknown(_)) => {
                self.batch.delete_again(deletions);
                Vec::new()
            }
            Err(failure) => {
                // Keys go with their lease. Where a lone, unconfirmed put may not even be read, it was never applied.
                let denied = matches!(failure, Failure::Refused(Refusal::PermissionDenied, _));
                let alone = denied && deletions.len() == 1;
                if let [deletion] = &*deletions {
                    self.calls.release_refused(deletion.contender, Refused::by(failure));
                }
                let left = |deletion: &Deletion| {
                    let never = alone && deletion.created.is_none();
                    !never && self.sessions.get(deletion.session).is_some()
                };
                let (kept, gone): (Vec<_>, Vec<_>) = deletions.into_iter().partition(left);
                if self.batch.delete_refused(kept) {
                    let pause = self.pause(SLOWLY);
                    self.timers.set_by(Timer::Deletes, self.now + pause);
                }
                gone
            }
        };
        self.are_gone(gone);
    }

    /// The keys of these are gone.
    fn are_gone(&mut self, deletions: Vec<Deletion>) {
        for deletion in deletions {
            if let Some(contender) = self.contenders.get(deletion.contender) {
                self.queues.hear(contender.names(), self.now);
            }
            self.remove(deletion.contender);
            self.batch.deleted(deletion.contender);
        }
    }
}

/// Reads and watches: what is asked when, and what answers and events mean for contenders.
impl Core {
    /// Sends the reads that are wanted.
    pub(super) fn flush_reads(&mut self) {
        while self.may_send()
            && let Some(reads) = self.observe.next_reads(|id| self.contenders.to_read(id))
        {
            let ops = reads.iter().flat_map(Read::ops).collect();
            let txn = transactions::reads(ops);
            self.send(Request::Txn(txn), Exchange::Read(reads));
        }
    }

    /// A contender may have to wait, as of this revision: reads what is older, or watches what excludes it. Then the heads of
    /// its names are served.
    pub(super) fn watch_predecessors(&mut self, id: ContenderId, revision: Revision) -> Option<()> {
        let contender = self.contenders.get(id)?;
        let names = contender.names().iter();
        names.for_each(|name| self.work.push(name));
        match contender.state() {
            State::Waiting { .. } if !contender.is_read() => self.observe.read(id, true),
            State::Waiting { .. } if contender.must_wait() => {
                self.watch(id, revision);
                self.read_later(id);
            }
            _ => {}
        }
        Some(())
    }

    /// Watches what has been held for a second, from the revision of a read on: its create revision may be compacted. What has been
    /// held for less is watched after its second.
    fn guard(&mut self, id: ContenderId, revision: Revision) -> Option<()> {
        let contender = self.contenders.get(id)?;
        let due = contender.held()?.got() + GUARD_AFTER;
        if due <= self.now {
            return self.watch(id, revision);
        }
        if !self.is_guarded(contender) {
            self.timers.set_by(Timer::Read(id), due);
        }
        Some(())
    }

    /// When a contender that waits is read next: early beside a fresh watch, and in time for its call to learn who owns the name.
    fn read_later(&mut self, id: ContenderId) -> Option<()> {
        let names = self.contenders.get(id)?.names().clone();
        let queue = self.queues.get(names.first()?)?;
        let mut queues = names.iter().filter_map(|name| self.queues.get(name));
        let after = match self.observe.early(self.now, names.first()?) {
            Some(early) => early,
            None if queues.any(|queue| queue.owner().is_some()) => self.jittered(WAITER),
            None => {
                let until = self.timers.at(&Timer::Wait(queue.head()?));
                until.map_or(RELIES, |until| ((until - self.now) / 2).min(RELIES))
            }
        };
        self.timers.set(Timer::Read(id), self.now + after);
        Some(())
    }

    fn is_guarded(&self, contender: &Contender) -> bool {
        let session = contender.session();
        self.observe.are_guarded(contender.names(), session)
    }

    /// Watches what matters of the names of a contender, from this revision on, unless that is watched. Closes the watches of these
    /// names that no contender needs any more.
    fn watch(&mut self, id: ContenderId, revision: Revision) -> Option<()> {
        let contender = self.contenders.get(id)?;
        let held = contender.ownership().is_some();
        for part in contender.parts() {
            let name = &part.name;
            let (whose, prefix) = match held {
                true => (Whose::Holds(contender.session()), part.guarded()),
                false => (Whose::Waits, part.watched(self.settings.near)),
            };
            let queue = self.queues.get(name);
            let waits = queue.is_some_and(|it| it.in_line().is_some());
            let closed = self.observe.close(name, |whose| match whose {
                Whose::Waits => !waits,
                Whose::Holds(session) => {
                    let mut held = queue.into_iter().flat_map(|it| it.held());
                    let under = |id| self.contenders.get(id).map(Contender::session);
                    !held.any(|id| under(id) == Some(session))
                }
            });
            self.outputs.extend(closed);
            let opened = self.observe.open(self.now, name, whose, prefix, revision);
            self.outputs.extend(opened);
        }
        Some(())
    }

    /// A contender's read is due: reads it, or opens the watch of a held one that has none.
    pub(super) fn read_due(&mut self, id: ContenderId) -> Option<()> {
        let contender = self.contenders.get(id)?;
        let (created, guarded) = (contender.created()?, self.is_guarded(contender));
        let asked = contender.ownership().map(Ownership::is_asked);
        let waits = matches!(contender.state(), State::Waiting { .. });
        match asked {
            Some(_) => drop(self.describe_due(id)),
            None if waits => {}
            None => self.read_retained_later(id),
        }
        if asked == Some(false) && !guarded {
            // From its create revision on: whatever happened to its keys since is reported.
            return self.watch(id, created);
        }
        self.observe.read(id, waits);
        Some(())
    }

    /// When a contender that stays locked after its call is read next: together with those that were locked with it.
    pub(super) fn read_retained_later(&mut self, id: ContenderId) {
        let next = (self.now + RETAINED).rounded_up(TOGETHER);
        self.timers.set(Timer::Read(id), next);
    }

    /// Has the keys of a contender say who holds it, once that call has held it for a second (rule P18).
    pub(super) fn describe_due(&mut self, id: ContenderId) -> Option<()> {
        let ownership = self.contenders.get_mut(id)?.ownership_mut()?;
        let due = ownership.got() + GUARD_AFTER;
        if due > self.now {
            self.timers.set(Timer::Describe(id), due);
        } else if ownership.set_described(true) {
            self.batch.describe(id);
        }
        Some(())
    }

    /// Sends the records of held keys that are to be written.
    pub(super) fn flush_descriptions(&mut self) {
        let mut keys = Vec::new();
        while self.may_send()
            && keys.len() < READS
            && let Some(id) = self.batch.next_described()
        {
            keys.extend(self.descriptions(id).into_iter().flatten());
        }
        if !keys.is_empty() {
            self.batch.describe_begun();
            let txn = transactions::describe(&keys);
            self.send(Request::Txn(txn), Exchange::Describe(keys));
        }
    }

    /// What the keys of a contender are to say of the call that holds it, if one has for a second.
    fn descriptions(&self, id: ContenderId) -> Option<Vec<Description>> {
        let contender = self.contenders.get(id)?;
        let ownership = contender.held().filter(|it| it.got() + GUARD_AFTER <= self.now)?;
        let record = self.record_of(ownership)?;
        let lease = self.sessions.get(contender.session())?.lease()?;
        let keys: Vec<Key> = contender.keys().cloned().collect();
        let description = |part: &Part| {
            Some(Description {
                contender: id,
                key: part.key.clone(),
                modified: part.modified()?,
                lease,
                record: value_of(&record, &part.key, &keys),
            })
        };
        contender.parts().iter().map(description).collect()
    }

    /// Records were written, or not. They only inform, so a failed write is not sent again; but where one key has changed, the others
    /// of its transaction are.
    pub(super) fn described(&mut self, keys: &[Description], result: Result<TxnAnswer, Failure>) {
        self.batch.describe_done();
        let Ok(answer) = result else { return };
        let (written, revision) = (answer.succeeded, answer.revision);
        let changed = transactions::changed(keys, answer);
        for contender in keys.iter().map(|it| it.contender) {
            let held = self.contenders.get_mut(contender);
            match held.filter(|it| it.ownership().is_some()) {
                Some(held) if written => held.record_write(revision),
                Some(_) if !changed.contains(&contender) => self.batch.describe(contender),
                _ => {}
            }
        }
    }

    /// Reads were not answered, or the answer is stale: they are sent again.
    pub(super) fn read_again(&mut self, reads: &[Read], stale: bool, failures: u32) {
        self.observe.read_done(reads.len());
        if stale {
            self.suspect_history(reads);
        }
        for read in reads {
            let pause = self.pause(failures);
            self.timers.set(Timer::Read(read.contender), self.now + pause);
        }
    }

    /// Reads came from a member that lags, or from an etcd that has lost its history (rules P20, P35): a write finds out which.
    fn suspect_history(&mut self, reads: &[Read]) -> Option<()> {
        let contenders = || {
            let contenders = reads.iter();
            contenders.filter_map(|read| self.contenders.get(read.contender))
        };
        let writes = |id: &SessionId| self.sessions.get(*id).is_some_and(Session::is_alive);
        let session = match contenders().map(Contender::session).find(writes) {
            Some(session) => session,
            None if self.shutdown.has_begun() => return None,
            // What is retained has none any more, and one that is lost writes nothing.
            None => {
                let ttl_secs = contenders().next()?.purpose().ttl_secs;
                self.sessions.choose(self.now, ttl_secs)
            }
        };
        self.sessions.wake(session)?.bar(self.now, true);
        Some(())
    }

    /// Reads were answered.
    pub(super) fn read(&mut self, reads: Vec<Read>, answer: TxnAnswer) {
        self.observe.read_done(reads.len());
        let mut answers = answer.answers.into_iter();
        for read in reads {
            let seen = read.seen(&mut answers);
            self.saw(&read, seen, answer.revision);
            self.watch_predecessors(read.contender, answer.revision);
            self.guard(read.contender, answer.revision);
        }
    }

    /// Takes in what a read shows of a contender.
    fn saw(&mut self, read: &Read, seen: Vec<Seen>, revision: Revision) -> Option<()> {
        let id = read.contender;
        let contender = self.contenders.get_mut(id)?;
        if let Some(retention) = contender.retention() {
            // Its keys are on the way to their lease, and the answer to that tells which were there.
            if !retention.is_moved() {
                return None;
            }
            // It may have lost some since the read was sent.
            let keys = || seen.iter().flat_map(|it| &it.keys);
            let is_it = |part: &Part, kv: &Kv| {
                kv.key == part.key.as_bytes() && Some(kv.create_revision) == contender.created()
            };
            let parts = contender.parts().iter();
            let gone = parts.filter(|part| !keys().any(|kv| is_it(part, kv)));
            let gone: Vec<Key> = gone.map(|part| part.key.clone()).collect();
            return self.retained_without(id, &gone);
        }
        let lease = self.sessions.get(contender.session())?.lease()?;
        match contender.compare(lease, revision, &seen) {
            Own::Intact => {}
            Own::Unknown => {
                self.observe.read(id, true);
                return None;
            }
            Own::Lost(cause) => return self.own_key_gone(id, cause),
        }
        let held = contender.ownership().is_some();
        // The contender was granted or given up after the read was sent, so the rest of the read is about another state.
        if held == read.up_to.is_some() {
            return None;
        }
        if !held {
            contender.read(revision, &seen);
        }
        let contender = self.contenders.get(id)?;
        let is_ours = |key: &[u8]| self.contenders.by_key(key).is_some();
        let mut contended = false;
        for (part, seen) in contender.parts().iter().zip(seen) {
            let others = match contender.ownership() {
                Some(of) => part.is_contended(of.created(), &seen.keys, is_ours),
                None => part.admitted().is_none(),
            };
            contended |= others;
            let whole = seen.whole.filter(|_| others);
            let is_own = |kv: &Kv| kv.key == part.key.as_bytes();
            // If so, the read did not include the owner's key, and the known owner stays.
            let instead = whole.as_ref().is_some_and(is_own);
            let owner = whole.map(|kv| self.owner_of(kv));
            let queue = self.queues.get_mut(&part.name)?;
            queue.see(self.now, others);
            if !held && !instead {
                queue.set_owner(owner);
            }
        }
        if let Some(ownership) = self.contenders.get_mut(id)?.ownership_mut() {
            ownership.read(self.now, revision, contended);
        }
        Some(())
    }

    /// The owner whose key etcd has shown. One of a session that this process has lost is no holder's: it says nothing of itself
    /// (rule P36).
    fn owner_of(&self, mut kv: Kv) -> Owner {
        if kv.lease.is_some_and(|lease| self.sessions.have_lost(lease)) {
            kv.value.clear();
        }
        Owner::of(kv)
    }

    /// A key of ours is gone, or was put by another client.
    pub(super) fn own_key_gone(&mut self, id: ContenderId, cause: LossCause) -> Option<()> {
        let contender = self.contenders.get(id)?;
        let session = contender.session();
        match contender.state() {
            State::Owned(ownership) if !ownership.is_lost() => {
                // Alone, or with its lease: the renewal shows which.
                let known = (cause != LossCause::Deleted).then_some(cause);
                if known.is_none() {
                    self.sessions.get_mut(session)?.miss(self.now, id);
                }
                self.lose_contender(id, known)?;
            }
            // What is left of it is in the way: out with it before the queue goes on.
            State::Waiting { .. } => self.delete(id),
            // Where it was put under its own lease, it was not taken away.
            State::Retained(_) if cause == LossCause::Deleted => {
                self.observe.read(id, true);
                return None;
            }
            _ => return None,
        }
        // Perhaps the whole lease is gone: the sooner that is known, the sooner the others go on.
        self.renew(session);
        Some(())
    }

    /// A watch reported something.
    pub(super) fn watch_event(&mut self, watch: WatchId, event: WatchEvent) -> Option<()> {
        let (name, whose) = self.observe.name_of(watch)?.clone();
        let WatchEvent::Changed(event) = event else {
            self.observe.close(&name, |ended| ended == whose);
            let queue = self.queues.get(&name)?;
            let contenders = queue.held().chain(queue.in_line());
            contenders.for_each(|id| self.observe.read(id, true));
            return Some(());
        };
        let (key, deleted) = match &event {
            Event::Put(kv) => (&kv.key, None),
            Event::Delete { key, revision } => (key, Some(*revision)),
        };
        let own = self.contenders.by_key(key);
        let lost = own.and_then(|id| {
            let contender = self.contenders.get(id)?;
            let lease = self.sessions.get(contender.session())?.lease()?;
            Some((id, contender.lost_by(&event, lease)?))
        });
        if let Some((id, cause)) = lost {
            self.own_key_gone(id, cause);
        }
        let deleted = deleted?;
        let in_line = self.queues.get(&name)?.in_line();
        // A key of ours that is being put may be gone before its put is answered: that is kept in mind.
        if let Some(own) = own.filter(|own| Some(*own) != in_line) {
            let contender = self.contenders.get_mut(own)?;
            contender.predecessor_deleted(&name, key, deleted);
        }
        // That a predecessor has gone does not make a contender the owner, only that all have (rule P14).
        let contender = self.contenders.get_mut(in_line?)?;
        if !contender.predecessor_deleted(&name, key, deleted) {
            return None;
        }
        match contender.is_admitted() {
            true => self.work.push(&name),
            false if self.observe.is_watched_whole(&name) => {}
            false => self.observe.read(in_line?, true),
        }
        Some(())
    }

    /// A read is to show whether a contender waits behind a key of readers.
    pub(super) fn ask_behind(&mut self, id: ContenderId) -> Option<()> {
        let ownership = self.contenders.get_mut(id)?.ownership_mut()?;
        if ownership.ask(self.now) {
            self.observe.read(id, true);
        }
        Some(())
    }
}
