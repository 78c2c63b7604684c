//! Sessions, and what is put and deleted under them.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Core, Exchange, SLOWLY};
use crate::calls::Tries;
use crate::contender::State;
use crate::ids::{
    ContenderId, Incarnation, Key, LeaseId, Revision, SessionId, contends, edges_of, value_of,
};
use crate::mistakes::{Mistake, mistake};
use crate::moment::Moment;
use crate::output::{LossCause, Output, Refused};
use crate::request::{Failure, Kv, Op, OpAnswer, Refusal, Request, Response, TxnAnswer};
use crate::session::Need;
use crate::steps;
use crate::timers::Timer;
use crate::transactions::{self, Deletion, Placement};

impl Core {
    /// Sends what sessions need: renewals even while etcd is not reached.
    pub(super) fn flush_sessions(&mut self) {
        let mut waiting = BTreeSet::new();
        while let Some(id) = self.dirty.pop_first() {
            steps::step();
            let may_send = self.may_send();
            let Some(session) = self.sessions.get_mut(id) else {
                continue;
            };
            match session.need(self.now) {
                Some(Need::Grant) if may_send => {
                    session.asked();
                    let ttl_secs = session.ttl_secs();
                    self.send(Request::Grant(ttl_secs), Exchange::Grant(id));
                }
                Some(Need::Grant) => drop(waiting.insert(id)),
                Some(Need::Stop(cause)) => self.lose_session(id, cause),
                Some(Need::Retire) => self.retire(id),
                Some(Need::Renew) if self.sessions.is_spare(id) => self.retire(id),
                Some(Need::Renew) if !self.shutdown.has_stopped() => self.renew(id),
                Some(Need::Renew) | None => {}
            }
            self.take_steps();
            if may_send {
                self.flush_puts(id);
                self.flush_barrier(id);
            } else {
                waiting.insert(id);
            }
            let session = self.sessions.get(id);
            let due = session.into_iter().flat_map(|session| {
                let barrier = session.barrier().due();
                session.due().into_iter().chain([barrier])
            });
            match due.flatten().filter(|due| *due > self.now).min() {
                Some(due) => self.timers.set(Timer::Session(id), due),
                None => self.timers.cancel(&Timer::Session(id)),
            }
        }
        self.dirty = waiting;
    }

    /// Renews a session now, unless that is under way.
    pub(super) fn renew(&mut self, id: SessionId) {
        let stopped = self.shutdown.has_stopped();
        let Some(session) = self.sessions.get_mut(id).filter(|_| !stopped) else {
            return;
        };
        if let (true, Some(lease)) = (session.renew(), session.lease()) {
            let timeout = session.renewal_timeout();
            self.send(Request::KeepAlive { lease, timeout }, Exchange::Renewal(id));
        }
    }

    /// The session a call of this TTL is to use.
    pub(super) fn choose_session(&mut self, ttl_secs: i64) -> SessionId {
        let (id, opened) =
            self.sessions
                .choose(self.now, ttl_secs, self.settings.bodies_per_session);
        self.dirty.extend(opened);
        id
    }

    /// Sends the puts of a session that are ready.
    pub(super) fn flush_puts(&mut self, id: SessionId) {
        while self.may_send() {
            let Some(session) = self.sessions.get(id).filter(|session| session.is_open()) else {
                return;
            };
            let (Some(fence), Some(lease)) = (session.fence(), session.lease()) else {
                return;
            };
            let (contenders, queues, calls) = (&self.contenders, &self.queues, &self.calls);
            let pending = |contender: ContenderId| {
                let found = contenders
                    .get(contender)
                    .filter(|it| matches!(it.state(), State::Pending));
                found.map_or(0, |it| it.names().len())
            };
            // A single try's contender, which is put only if no other key is there.
            let tries = |contender: ContenderId| {
                let first = contenders.get(contender).and_then(|it| it.names().first());
                let head = first.and_then(|name| queues.get(name)?.head());
                let waiting = head.and_then(|head| calls.waiting(head.call));
                waiting.is_some_and(|waiting| waiting.tries == Tries::IfNone)
            };
            let Some(next) = self.batch.next_put(id, pending, tries) else {
                return;
            };
            let alone = next.len() == 1 && next.iter().all(|contender| tries(*contender));
            let mut placements = Vec::new();
            for contender in &next {
                self.contenders.sent(*contender, lease);
                placements.extend(self.placements(*contender));
            }
            match (alone, next.first()) {
                (true, Some(contender)) => {
                    let txn = transactions::put_if_none(&fence, lease, &placements);
                    self.send(Request::Txn(txn), Exchange::Try(id, *contender));
                }
                _ => {
                    let txn = transactions::put(&fence, lease, &placements);
                    self.send(Request::Txn(txn), Exchange::Put(id, next));
                }
            }
        }
    }

    /// What is put for a contender.
    pub(super) fn placements(&self, id: ContenderId) -> Vec<Placement> {
        let Some(contender) = self.contenders.get(id) else {
            return Vec::new();
        };
        let keys: Vec<Key> = contender.keys().cloned().collect();
        let placement = |part: &crate::part::Part| {
            let watched = self.observe.is_watched(&part.name);
            Placement {
                record: value_of(contender.record(), &part.key, &keys),
                key: part.key.clone(),
                family: part.family.clone(),
                all: watched || part.seat != crate::seat::Seat::Exclusive,
            }
        };
        contender.parts().iter().map(placement).collect()
    }

    /// Sends the barrier of a session, if one is wanted.
    pub(super) fn flush_barrier(&mut self, id: SessionId) {
        let (now, contenders) = (self.now, &self.contenders);
        let may_send = self.exchanges.may_send(now);
        let Some(session) = self
            .sessions
            .get_mut(id)
            .filter(|session| may_send && session.is_alive())
        else {
            return;
        };
        let (Some((key, modified)), Some(lease)) = (session.session_key(), session.lease()) else {
            return;
        };
        let count =
            |contender: ContenderId| contenders.get(contender).map_or(0, |it| it.parts().len());
        let Some(ids) = session
            .barrier_mut()
            .send(now, transactions::AMBIGUOUS, count)
        else {
            return;
        };
        let keys = ids.iter().filter_map(|id| contenders.get(*id));
        let keys: Vec<Key> = keys.flat_map(|it| it.keys().cloned()).collect();
        // The youngest key that is held: if history went back to before any of them, it is not there.
        let suspicious = session.barrier().is_suspicious();
        let witness = suspicious.then(|| self.witness(id)).flatten();
        let read = keys
            .into_iter()
            .chain(witness.iter().map(|(key, _)| key.clone()));
        let txn = transactions::barrier(&key, modified, lease, read);
        self.send(Request::Txn(txn), Exchange::Barrier(id, witness));
    }

    /// The youngest key that calls hold under a session.
    pub(super) fn witness(&self, id: SessionId) -> Option<Incarnation> {
        let contenders = self.sessions.get(id)?.contenders();
        let owned = |id: ContenderId| {
            self.contenders
                .get(id)
                .filter(|it| it.ownership().is_some())
        };
        let contender = contenders.rev().find_map(owned)?;
        Some((contender.keys().next()?.clone(), contender.created()?))
    }

    /// Reads contenders whose put was refused although it may have been applied: nothing comes later. A delete that finds nothing
    /// makes the read a write, which no member that lags can answer (rule P20).
    pub(super) fn flush_unsettled(&mut self) {
        while self.may_send() && !self.unsettled.is_empty() {
            let mut ids = Vec::new();
            let mut ops = Vec::new();
            while let Some(id) = self.unsettled.pop_first() {
                let keys = self.contenders.get(id).into_iter().flat_map(|it| it.keys());
                ops.extend(keys.map(|key| Op::Get(key.clone())));
                ids.push(id);
                if ops.len() >= transactions::READS {
                    break;
                }
            }
            if let Some(Op::Get(key)) = ops.first() {
                let prefix = edges_of(&self.root, key);
                ops.insert(0, Op::DeleteUnder(prefix));
                let txn = transactions::reads(ops);
                self.send(Request::Txn(txn), Exchange::Settle(ids));
            }
        }
    }

    /// etcd was wiped, or restored from a snapshot (rule P35): all ownership that is older is lost.
    pub(super) fn lose_history(&mut self) {
        for id in self.sessions.ids() {
            if self
                .sessions
                .get(id)
                .is_some_and(|session| session.has_opened())
            {
                self.lose_session(id, LossCause::Wiped);
            }
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
        let root = self.root.clone();
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        self.dirty.insert(id);
        match result {
            Ok((lease, ttl)) => {
                session.granted(
                    self.now,
                    sent,
                    lease,
                    ttl,
                    format!("{root}{lease:x}").into(),
                );
                session.barrier_mut().ask();
            }
            Err(failure @ Failure::Refused(..)) => self.give_up_session(id, &Refused::by(failure)),
            // A grant that was carried out unseen runs out by itself: nothing was put under it.
            Err(Failure::Unavailable(_) | Failure::Unknown(_)) if session.is_unused() => {
                self.sessions.remove(id); // no call waits for it any more: the next one asks anew
            }
            Err(Failure::Unavailable(_) | Failure::Unknown(_)) => {
                let pause = self.pause(self.exchanges.failures());
                self.sessions
                    .get_mut(id)
                    .into_iter()
                    .for_each(|session| session.ask_again(self.now + pause));
            }
        }
    }

    /// A session cannot be had: refuses all calls that wait for it.
    pub(super) fn give_up_session(&mut self, id: SessionId, why: &Refused) {
        let Some(mut session) = self.sessions.remove(id) else {
            return;
        };
        for call in session.take_warming() {
            self.refuse(call, why.clone());
        }
        for contender in session.contenders().collect::<Vec<_>>() {
            let names = self.contenders.get(contender).map(|it| it.names().clone());
            self.remove(contender);
            // Each call that waits for them would meet the same.
            let waiters = names
                .iter()
                .flat_map(|names| names.iter())
                .filter_map(|name| self.queues.get(name));
            for call in waiters
                .flat_map(|queue| queue.waiters().map(|waiter| waiter.call))
                .collect::<Vec<_>>()
            {
                self.refuse(call, why.clone());
            }
        }
        self.batch.remove_session(id);
        self.revocations.extend(session.lease());
    }

    /// A renewal was answered, or not (rules P28, P30).
    pub(super) fn renewed(
        &mut self,
        id: SessionId,
        sent: Moment,
        floor: Option<Revision>,
        result: Result<Response, Failure>,
    ) {
        let pause = self.pause(SLOWLY.min(self.exchanges.failures()));
        let Some(session) = self
            .sessions
            .get_mut(id)
            .filter(|session| session.is_alive())
        else {
            return;
        };
        self.dirty.insert(id);
        let lags = |revision: Option<Revision>| {
            revision
                .zip(floor)
                .is_some_and(|(revision, floor)| revision < floor)
        };
        match result {
            Ok(Response::KeptAlive { ttl, revision }) if !ttl.is_zero() => {
                // A lower revision is of a follower that lags, or of an etcd that lost its history: a write finds out.
                if lags(revision) {
                    session.barrier_mut().suspect();
                }
                match session.renewed(self.now, sent, ttl) {
                    Some(names) => names.iter().for_each(|name| self.work.push(name)),
                    None => return self.lose_session(id, LossCause::Expired),
                }
                if lags(revision) && mistake(Mistake::RenewalProvesLostHistory) {
                    self.lose_history();
                }
            }
            Ok(Response::KeptAlive { revision, .. }) => {
                let cause = if lags(revision) {
                    LossCause::Wiped
                } else {
                    LossCause::Revoked
                };
                session.end(cause);
                self.lose_session(id, cause);
            }
            Ok(_) | Err(Failure::Refused(Refusal::LeaseNotFound, _)) => {
                session.end(LossCause::Revoked);
                self.lose_session(id, LossCause::Revoked);
            }
            Err(_) => session.renewal_failed(self.now, pause),
        }
    }

    /// A lease was revoked; or that had no answer, and is sent again: its keys would stand in the way for a TTL (rule P36).
    pub(super) fn revoked(&mut self, lease: LeaseId, result: &Result<Response, Failure>) {
        self.revoking -= 1;
        let unanswered = matches!(result, Err(Failure::Unavailable(_) | Failure::Unknown(_)));
        if unanswered && !self.shutdown.is_finished() {
            self.revocations.push(lease);
        }
    }

    /// The session is not to be relied on any more: its bodies stop, its waiters queue again under another (rule P28).
    pub(super) fn lose_session(&mut self, id: SessionId, cause: LossCause) {
        if let Some(session) = self
            .sessions
            .get_mut(id)
            .filter(|session| !session.is_lost() && !session.is_granting())
        {
            session.lose();
            self.leave_session(id, Some(cause));
        }
    }

    /// The session takes no acquisitions any more, but keeps its bodies (rule P10).
    pub(super) fn retire(&mut self, id: SessionId) {
        if let Some(session) = self
            .sessions
            .get_mut(id)
            .filter(|session| session.accepts() && !session.is_granting())
        {
            session.retire();
            self.leave_session(id, None);
        }
    }

    pub(super) fn leave_session(&mut self, id: SessionId, lost: Option<LossCause>) {
        self.sessions.withdraw(id);
        self.batch.forget_session(id);
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        let (ttl_secs, warming) = (session.ttl_secs(), session.take_warming());
        for contender in session.contenders().collect::<Vec<_>>() {
            self.leave_contender(contender, lost);
        }
        for call in warming {
            if self.withdraw(call).is_some() {
                self.warm(call, ttl_secs);
            }
        }
        self.dirty.insert(id);
        self.revoke_if_over(id);
    }

    /// The session of a contender is lost, or retired.
    pub(super) fn leave_contender(&mut self, id: ContenderId, lost: Option<LossCause>) {
        let Some(contender) = self.contenders.get_mut(id) else {
            return;
        };
        match (contender.state(), lost) {
            (State::Pending, _) => self.remove(id),
            (State::Creating, _) | (State::Ambiguous, None) => self.detach(id),
            (State::Ambiguous, Some(_)) => self.remove(id),
            // It must not stand in the way of the next one; its lease may live on, with its bodies or because it was lost only here.
            (State::Waiting { .. }, _) => {
                self.detach(id);
                self.delete(id);
            }
            (State::Owned(_), Some(cause)) => self.lose_contender(id, cause),
            (State::Deleting, Some(cause)) => {
                self.confirm(id, Err(Refused::Lost { cause }));
                self.detach(id);
            }
            // What is lost before it has a lease of its own is lost.
            (State::Retained { .. }, Some(_)) => self.retentions.session_lost(id),
            (State::Owned(_) | State::Deleting | State::Retained { .. }, None) => {}
        }
    }

    /// The calls that hold a contender have lost it.
    pub(super) fn lose_contender(&mut self, id: ContenderId, cause: LossCause) {
        let Some(contender) = self.contenders.get_mut(id) else {
            return;
        };
        let names = contender.names().clone();
        let Some(ownership) = contender.ownership_mut() else {
            return;
        };
        ownership.lose();
        for call in ownership.holders().collect::<Vec<_>>() {
            self.lose_call(call, cause);
        }
        self.linger_over(id);
        names.iter().for_each(|name| self.work.push(name));
    }

    /// Revokes a session that is of no more use, once no body runs under it (rule P26).
    pub(super) fn revoke_if_over(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get(id).filter(|session| session.is_over()) else {
            return;
        };
        let ambiguous = session.contenders().filter(|id| {
            self.contenders
                .get(*id)
                .is_some_and(|it| matches!(it.state(), State::Ambiguous))
        });
        for contender in ambiguous.collect::<Vec<_>>() {
            self.remove(contender);
        }
        if let Some(session) = self.sessions.remove(id) {
            self.batch.remove_session(id);
            self.timers.cancel(&Timer::Session(id));
            self.revocations.extend(session.lease());
        }
    }

    /// A barrier was answered, or not (rule P10).
    pub(super) fn barred(
        &mut self,
        id: SessionId,
        witness: Option<Incarnation>,
        result: Result<TxnAnswer, Failure>,
    ) {
        let pause = self.pause(SLOWLY);
        self.dirty.insert(id);
        let Some(session) = self
            .sessions
            .get_mut(id)
            .filter(|session| !session.is_lost())
        else {
            return;
        };
        let opened = session.has_opened();
        let answer = match result {
            Ok(answer) => answer,
            Err(Failure::Refused(Refusal::LeaseNotFound, _)) => {
                return self.lose_session(id, LossCause::Revoked);
            }
            Err(failure @ Failure::Refused(..)) if !opened => {
                let why = match Refused::by(failure) {
                    Refused::PermissionDenied(cause) => Refused::SessionDenied(cause),
                    why => why,
                };
                return self.give_up_session(id, &why);
            }
            Err(failure) => {
                let refused = matches!(failure, Failure::Refused(..));
                if refused && mistake(Mistake::BarrierNotRepeated) {
                    session.barrier_mut().answered();
                    return self.retire(id);
                }
                let pause = if refused {
                    pause
                } else {
                    std::time::Duration::ZERO
                };
                let took = session.barrier_mut().failed(self.now, pause);
                // Acquisitions go on under another session; this one is barred until etcd has answered, as long as it lives.
                if opened && (refused || took >= session.ttl()) {
                    self.retire(id);
                }
                return;
            }
        };
        let mut answers = answer.answers.into_iter();
        let found = answers.next().and_then(OpAnswer::first);
        let contenders = session.barrier_mut().answered();
        let session_contenders: Vec<ContenderId> = match witness {
            Some(_) => session.contenders().collect(),
            None => Vec::new(),
        };
        let lease = session.lease();
        let intact = match answer.succeeded {
            true => Some(answer.revision),
            false => found
                .filter(|kv| Some(kv.lease) == lease)
                .map(|kv| kv.mod_revision),
        };
        session.barred(intact);
        for contender in contenders {
            let keys = self
                .contenders
                .get(contender)
                .map_or(0, |it| it.parts().len());
            let found: Vec<Option<Kv>> = answers.by_ref().take(keys).map(OpAnswer::first).collect();
            self.settle_ambiguous(contender, answer.revision, &found);
        }
        let youngest = answers
            .next()
            .and_then(OpAnswer::first)
            .map(|kv| kv.create_revision);
        if let Some((_, created)) = witness
            && youngest != Some(created)
            && !mistake(Mistake::OnlyAWipeIsLostHistory)
        {
            // It may have gone meanwhile; or history went back to before it, and others are not there either.
            for contender in session_contenders {
                self.observe.read(contender, false);
            }
        }
        if intact.is_none() {
            return self.retire(id); // the session key was deleted, or put by another client
        }
        let Some(session) = self
            .sessions
            .get_mut(id)
            .filter(|session| session.is_open())
        else {
            return;
        };
        for call in session.take_warming() {
            if self.withdraw(call).is_some() {
                self.outputs.push_back(Output::Ready(call));
            }
        }
    }

    /// A barrier told whether the keys of an ambiguous contender exist.
    pub(super) fn settle_ambiguous(
        &mut self,
        id: ContenderId,
        revision: Revision,
        found: &[Option<Kv>],
    ) {
        let Some(contender) = self
            .contenders
            .get_mut(id)
            .filter(|it| matches!(it.state(), State::Ambiguous))
        else {
            return;
        };
        let created: Vec<Revision> = found
            .iter()
            .flatten()
            .map(|kv| kv.create_revision)
            .collect();
        let names = contender.names().clone();
        self.queues.hear(&names, self.now);
        names.iter().for_each(|name| self.work.push(name));
        let Some(first) = created.first() else {
            return self.remove(id);
        };
        contender.created_at(self.now, *first);
        // One of its keys is gone already: all go (rule P13).
        if contender.is_detached() || created.len() < found.len() {
            return self.delete(id);
        }
        self.watch_predecessors(id, revision);
    }

    /// A read told whether keys exist whose put was refused, or did not.
    pub(super) fn settle(&mut self, ids: Vec<ContenderId>, result: Result<TxnAnswer, Failure>) {
        let answer = match result {
            Ok(answer) => answer,
            // What may not even be read goes with its lease.
            Err(Failure::Refused(..)) => return ids.into_iter().for_each(|id| self.remove(id)),
            Err(_) => return self.unsettled.extend(ids),
        };
        let mut answers = answer.answers.into_iter().skip(1);
        for id in ids {
            let keys = self.contenders.get(id).map_or(0, |it| it.parts().len());
            let found: Vec<Option<Kv>> = answers.by_ref().take(keys).map(OpAnswer::first).collect();
            self.settle_ambiguous(id, answer.revision, &found);
        }
    }

    /// What etcd said to a session's put about its session key, which is not as it was.
    pub(super) fn session_moved(&mut self, id: SessionId, answer: TxnAnswer) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        let known = session.fence().map(|fence| fence.modified);
        match answer.answers.into_iter().next().and_then(OpAnswer::first) {
            Some(kv) if Some(kv.lease) == session.lease() => {
                if Some(kv.mod_revision) != known {
                    session.barrier_mut().ask();
                }
            }
            _ => self.retire(id),
        }
    }

    /// A transaction of puts was answered, or not (rules P8 to P10).
    pub(super) fn put(
        &mut self,
        session: SessionId,
        ids: Vec<ContenderId>,
        result: Result<TxnAnswer, Failure>,
    ) {
        self.batch.put_done(session);
        self.dirty.insert(session);
        let answer = match result {
            Ok(answer) if answer.succeeded => answer,
            Ok(answer) => {
                self.unsent(session, ids);
                return self.session_moved(session, answer);
            }
            Err(failure) => return self.put_failed(session, ids, failure),
        };
        let revision = answer.revision;
        let mut answers = answer.answers.into_iter();
        for id in ids {
            self.placed(id, revision, &mut answers);
        }
    }

    /// The put of a contender was applied.
    pub(super) fn placed(
        &mut self,
        id: ContenderId,
        revision: Revision,
        answers: &mut impl Iterator<Item = OpAnswer>,
    ) {
        let now = self.now;
        let Some(contender) = self.contenders.get_mut(id) else {
            return;
        };
        for at in 0..contender.parts().len() {
            let previous = answers.next().and_then(OpAnswer::first);
            let found = answers.next().map(OpAnswer::found).unwrap_or_default();
            let created = previous.map_or(revision, |kv| kv.create_revision);
            if at == 0 {
                contender.created_at(now, created);
            }
            let Some(part) = contender.parts().get(at) else {
                continue;
            };
            let foreign = found
                .iter()
                .any(|kv| kv.key != part.key.as_bytes() && contends(&part.family, &kv.key));
            if let Some(queue) = self.queues.get_mut(&part.name) {
                queue.see(now, foreign);
            }
            contender.placed(at, created, revision, &found);
        }
        if contender.is_detached() {
            return self.delete(id);
        }
        self.watch_predecessors(id, revision);
    }

    /// Nothing of a put was applied: its contenders are put again, if they are wanted.
    pub(super) fn unsent(&mut self, session: SessionId, ids: Vec<ContenderId>) {
        for id in ids.into_iter().rev() {
            let Some(contender) = self
                .contenders
                .get_mut(id)
                .filter(|it| matches!(it.state(), State::Creating))
            else {
                continue;
            };
            contender.unsent();
            let names = contender.names().clone();
            match contender.is_detached() {
                true => self.remove(id),
                false => self.batch.put_first(session, id),
            }
            names.iter().for_each(|name| self.work.push(name));
        }
    }

    /// A put has no answer, or was refused.
    pub(super) fn put_failed(
        &mut self,
        session: SessionId,
        ids: Vec<ContenderId>,
        failure: Failure,
    ) {
        match failure {
            Failure::Unavailable(_) => self.unsent(session, ids),
            Failure::Unknown(_) if mistake(Mistake::PutAgainWithoutBarrier) => {
                self.unsent(session, ids)
            }
            Failure::Unknown(_) => {
                for id in ids {
                    let lost = self
                        .sessions
                        .get(session)
                        .is_none_or(|session| session.is_lost());
                    let Some(contender) = self.contenders.get_mut(id) else {
                        continue;
                    };
                    contender.ambiguous();
                    match self.sessions.get_mut(session) {
                        Some(session) if !lost => session.barrier_mut().add(id),
                        _ => self.remove(id), // it goes with its lease
                    }
                }
                self.revoke_if_over(session);
            }
            Failure::Refused(Refusal::LeaseNotFound, _) => {
                self.unsent(session, ids);
                if let Some(session) = self.sessions.get_mut(session) {
                    session.end(LossCause::Revoked);
                }
                self.lose_session(session, LossCause::Revoked);
            }
            // Nothing comes later, but the keys may be there (rule P34).
            Failure::Refused(Refusal::NoSpace, _) if !mistake(Mistake::RefusedIsNotApplied) => {
                let why = Refused::by(failure);
                for id in ids {
                    let served = self.served_by(id);
                    if let Some(contender) = self.contenders.get_mut(id) {
                        contender.ambiguous();
                        self.unsettled.insert(id);
                    }
                    served
                        .into_iter()
                        .for_each(|call| self.refuse(call, why.clone()));
                }
                self.revoke_if_over(session);
            }
            // One bad name fails all: the halves go their own ways, but no group is torn (rules P9, P13).
            Failure::Refused(..) if ids.len() > 1 => {
                for id in &ids {
                    self.contenders
                        .get_mut(*id)
                        .into_iter()
                        .for_each(|contender| contender.unsent());
                }
                let (gone, left): (Vec<_>, Vec<_>) = ids
                    .into_iter()
                    .partition(|id| self.contenders.get(*id).is_none_or(|it| it.is_detached()));
                gone.into_iter().for_each(|id| self.remove(id));
                self.batch.put_in_parts(session, left);
            }
            Failure::Refused(..) => {
                let why = Refused::by(failure);
                for id in ids {
                    let served = self.served_by(id);
                    self.remove(id);
                    served
                        .into_iter()
                        .for_each(|call| self.refuse(call, why.clone()));
                }
            }
        }
    }

    /// A single try was answered, or not (rule P11).
    pub(super) fn tried(
        &mut self,
        session: SessionId,
        id: ContenderId,
        result: Result<TxnAnswer, Failure>,
    ) {
        let answer = match result {
            Ok(answer) => answer,
            Err(failure) => {
                self.batch.put_done(session);
                self.dirty.insert(session);
                return self.put_failed(session, vec![id], failure);
            }
        };
        self.batch.put_done(session);
        self.dirty.insert(session);
        let served = self.served_by(id);
        let Some(contender) = self.contenders.get_mut(id) else {
            return;
        };
        let names = contender.names().clone();
        self.queues.hear(&names, self.now);
        names.iter().for_each(|name| self.work.push(name));
        if answer.succeeded {
            contender.placed_alone(self.now, answer.revision);
            if contender.is_detached() {
                self.delete(id);
            }
            return;
        }
        let families: Vec<Key> = contender
            .parts()
            .iter()
            .map(|part| part.family.clone())
            .collect();
        let mut answers = answer.answers.iter().cloned();
        let found = answers
            .next()
            .and_then(OpAnswer::first)
            .map(|kv| kv.mod_revision);
        let owners: Vec<Option<Kv>> = answers.map(OpAnswer::first).collect();
        self.unsent(session, vec![id]);
        let fence = self
            .sessions
            .get(session)
            .and_then(|session| session.fence());
        if fence.is_none_or(|fence| Some(fence.modified) != found) {
            return self.session_moved(session, answer);
        }
        let Some(call) = served.filter(|call| self.calls.get(*call).is_some_and(|it| it.is_try()))
        else {
            return;
        };
        let mut held = families
            .iter()
            .zip(owners)
            .enumerate()
            .filter_map(|(at, (family, kv))| {
                Some((at, kv.filter(|kv| contends(family, &kv.key))?))
            });
        match held.next() {
            Some((name, kv)) => {
                let holder = Some(kv.value.into());
                self.refuse(call, Refused::Held { name, holder });
            }
            // Only deeper keys, as far as one key tells; or the owner has just gone.
            None => drop(self.calls.try_plainly(call)),
        }
    }

    /// Deletes were answered, or not (rules P24, P34).
    pub(super) fn deleted(&mut self, deletions: Vec<Deletion>, result: Result<TxnAnswer, Failure>) {
        self.batch.delete_done();
        match result {
            Ok(answer) if answer.succeeded => {
                for deletion in deletions {
                    self.gone(deletion.contender);
                }
            }
            Ok(answer) => {
                let mut found = answer.answers.into_iter().map(OpAnswer::first);
                for mut deletion in deletions {
                    let (created, keys) = (deletion.created, std::mem::take(&mut deletion.keys));
                    let there = |kv: &Option<Kv>| {
                        kv.as_ref().is_some_and(|kv| kv.create_revision == created)
                    };
                    deletion.keys = keys
                        .into_iter()
                        .zip(&mut found)
                        .filter(|(_, kv)| there(kv))
                        .map(|(key, _)| key)
                        .collect();
                    match deletion.keys.is_empty() {
                        true => self.gone(deletion.contender),
                        false => self.batch.delete_again(vec![deletion]),
                    }
                }
            }
            Err(Failure::Unavailable(_) | Failure::Unknown(_)) => {
                self.batch.delete_again(deletions)
            }
            // Its lease is gone, and the key with it; but it may have been put under another lease, so it is asked for once more.
            Err(failure) => {
                if deletions.len() == 1 {
                    let id = deletions.first().map(|deletion| deletion.contender);
                    id.map(|id| self.confirm(id, Err(Refused::by(failure.clone()))));
                }
                let alive = |deletion: &Deletion| self.sessions.get(deletion.session).is_some();
                let (kept, over): (Vec<_>, Vec<_>) = deletions.into_iter().partition(alive);
                if kept.is_empty() {
                    return over
                        .into_iter()
                        .for_each(|deletion| self.gone(deletion.contender));
                }
                self.batch.delete_again(over);
                if self.batch.delete_refused(kept) {
                    let pause = self.pause(SLOWLY);
                    self.timers.set_by(Timer::Deletes, self.now + pause);
                }
            }
        }
    }

    /// The keys of a contender are known to be gone.
    pub(super) fn gone(&mut self, id: ContenderId) {
        let contender = self.contenders.get(id).filter(|it| !it.is_detached());
        if let Some(contender) = contender {
            self.queues.hear(contender.names(), self.now);
        }
        self.remove(id);
    }
}
