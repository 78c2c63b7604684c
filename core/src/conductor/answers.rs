//! Answers: what etcd's answers and events lead to.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Abort, Core, Exchange, ReadItem, SLOWLY, UnderWay};
use crate::batch::Deletion;
use crate::contender::{Part, State};
use crate::deadlock::{Cycle, Edge, edges};
use crate::ids::{
    ContenderId, Incarnation, Key, LeaseId, Name, RequestId, Revision, SessionId, WatchId, contends,
};
use crate::mistakes::{Mistake, mistake};
use crate::moment::Moment;
use crate::observe::{HOLDER, RELIES, WAITER};
use crate::output::{LossCause, Output, Refused};
use crate::request::{
    Cause, Event, Failure, Kv, OpAnswer, Refusal, Request, Response, TxnAnswer, WatchEvent,
};
use crate::seat::Seat;
use crate::timers::Timer;
use crate::transactions;

impl Core {
    /// etcd answered a request, or did not.
    pub(super) fn answer(&mut self, request: RequestId, result: Result<Response, Failure>) {
        let Some(UnderWay {
            exchange,
            sent,
            floor,
            epoch,
        }) = self.under_way.remove(&request)
        else {
            return;
        };
        match &result {
            Ok(_) | Err(Failure::Refused { .. }) => self.unreachable.answered(self.now),
            Err(Failure::Unavailable(cause) | Failure::Unknown(cause)) => {
                self.unreachable.failed(cause.clone());
                let pause = self.pause(self.unreachable.failures());
                self.unreachable.hold_off(self.now + pause);
                self.timers.set(Timer::Flush, self.now + pause);
            }
        }
        let current = epoch == self.epoch;
        let proof = match &result {
            Ok(Response::Txn(answer)) if current => self.check_history(&exchange, answer, floor),
            _ => false,
        };
        // What a delete confirms stays confirmed.
        let confirms = matches!(exchange, Exchange::Delete(_));
        if proof && !confirms {
            self.lose_history();
        }
        let stale =
            |answer: &TxnAnswer| current && floor.is_some_and(|floor| answer.revision < floor);
        match exchange {
            Exchange::Grant(id) => self.granted(id, sent, result),
            Exchange::Renewal(id) => self.renewed(id, sent, floor.filter(|_| current), result),
            Exchange::Revocation(lease) => self.revoked(lease, &result),
            Exchange::Barrier(id, witness) => self.barred(id, witness, transaction(result)),
            Exchange::Settle(ids) => match transaction(result) {
                Ok(answer) if !stale(&answer) => self.settle(ids, answer),
                // What may not even be read goes with its lease.
                Err(Failure::Refused { .. }) => ids.into_iter().for_each(|id| self.remove(id)),
                _ => self.unsettled.extend(ids),
            },
            Exchange::Put(session, ids) => self.put(session, ids, transaction(result)),
            Exchange::Try(session, id) => self.tried(session, id, transaction(result)),
            Exchange::Delete(deletions) => self.deleted(deletions, transaction(result)),
            Exchange::Read(items) => match transaction(result) {
                Ok(answer) if stale(&answer) => self.read_stale(items),
                result => self.read(items, sent, result),
            },
            Exchange::Reserve(id) => self.reserved(id, result),
            Exchange::Retain(id, lease) => self.retained(id, lease, transaction(result)),
            Exchange::Edge(session, edge, write) => {
                let outcome = self.outcome(session, transaction(result));
                let barred = self.deadlock.edges.written(&edge, write, outcome);
                self.bar(barred);
            }
            Exchange::Search(id) => match transaction(result) {
                Ok(answer) => {
                    if let Some(cycle) = self.deadlock.found(id, answer) {
                        self.cut(id, cycle);
                    }
                }
                Err(_) => self.deadlock.search_failed(id),
            },
            Exchange::Abort(abort) => {
                let outcome = self.outcome(abort.session, transaction(result));
                self.aborted(*abort, outcome);
            }
            Exchange::Probe => {}
        }
        if proof && confirms {
            self.lose_history();
        }
        self.refuse_cleared();
    }

    /// A write that answers no higher revision than was known when it was sent proves that etcd has lost its history: it was
    /// wiped, or restored from a snapshot (rule P35). Then all ownership that is older is lost.
    fn check_history(
        &mut self,
        exchange: &Exchange,
        answer: &TxnAnswer,
        floor: Option<Revision>,
    ) -> bool {
        let writes = answer.succeeded
            && match exchange {
                Exchange::Put(..)
                | Exchange::Try(..)
                | Exchange::Barrier(..)
                | Exchange::Delete(_)
                | Exchange::Retain(..) => true,
                Exchange::Edge(_, _, write) => *write == edges::Write::Put,
                _ => false,
            };
        let wiped = |session: &crate::session::Session| session.has_opened();
        let missed = mistake(Mistake::OnlyAWipeIsLostHistory)
            && !matches!(exchange, Exchange::Barrier(id, _) if self.sessions.get(*id).is_some_and(|it| !wiped(it)));
        let proof = writes && !missed && floor.is_some_and(|floor| answer.revision <= floor);
        if proof {
            self.highest = None;
        }
        // What was sent under a session that is gone may be of the history that was lost.
        let session = match exchange {
            Exchange::Put(id, _) | Exchange::Try(id, _) | Exchange::Barrier(id, _) => Some(*id),
            _ => None,
        };
        let current = |id: SessionId| self.sessions.get(id).is_some_and(|it| !it.is_lost());
        if session.is_none_or(current) {
            self.highest = self.highest.max(Some(answer.revision));
        }
        proof
    }

    fn lose_history(&mut self) {
        self.epoch += 1;
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
            self.outputs.push_back(Output::Unwatch { id });
            self.work.push(&name);
        }
    }

    /// A lease was granted, or not.
    fn granted(&mut self, id: SessionId, sent: Moment, result: Result<Response, Failure>) {
        let root = self.root.clone();
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        self.dirty.insert(id);
        match result {
            Ok(Response::Granted { lease, ttl }) => {
                session.granted(
                    self.now,
                    sent,
                    lease,
                    ttl,
                    format!("{root}{lease:x}").into(),
                );
                session.barrier_mut().ask();
            }
            Ok(other) => self.give_up_session(id, &Refused::Backend(unexpected(&other))),
            Err(failure @ Failure::Refused { .. }) => {
                self.give_up_session(id, &Refused::by(failure))
            }
            // A grant that was carried out unseen runs out by itself: nothing was put under it.
            Err(Failure::Unavailable(_) | Failure::Unknown(_)) if session.is_unused() => {
                self.sessions.remove(id); // no call waits for it any more: the next one asks anew
            }
            Err(Failure::Unavailable(_) | Failure::Unknown(_)) => {
                let pause = self.pause(self.unreachable.failures());
                self.sessions
                    .get_mut(id)
                    .into_iter()
                    .for_each(|session| session.ask_again(self.now + pause));
            }
        }
    }

    /// A session cannot be had: refuses all calls that wait for it.
    fn give_up_session(&mut self, id: SessionId, why: &Refused) {
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
    fn renewed(
        &mut self,
        id: SessionId,
        sent: Moment,
        floor: Option<Revision>,
        result: Result<Response, Failure>,
    ) {
        let pause = self.pause(SLOWLY.min(self.unreachable.failures()));
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
            Ok(_)
            | Err(Failure::Refused {
                kind: Refusal::LeaseNotFound,
                ..
            }) => {
                session.end(LossCause::Revoked);
                self.lose_session(id, LossCause::Revoked);
            }
            Err(_) => session.renewal_failed(self.now, pause),
        }
    }

    /// A lease was revoked; or that had no answer, and is sent again: its keys would stand in the way for a TTL (rule P36).
    fn revoked(&mut self, lease: LeaseId, result: &Result<Response, Failure>) {
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

    fn leave_session(&mut self, id: SessionId, lost: Option<LossCause>) {
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
            if self.calls.remove_warming(call) {
                self.warm(call, ttl_secs);
            }
        }
        self.dirty.insert(id);
        self.revoke_if_over(id);
    }

    /// The session of a contender is lost, or retired.
    fn leave_contender(&mut self, id: ContenderId, lost: Option<LossCause>) {
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
                if let Some(call) = self.confirming.remove(&id) {
                    self.confirm(call, Err(Refused::Lost { cause }));
                }
                self.detach(id);
            }
            // What is lost before it has a lease of its own is lost.
            (State::Retained { .. }, Some(_)) => drop(self.retaining.remove(&id)),
            (State::Owned(_) | State::Deleting | State::Retained { .. }, None) => {}
        }
    }

    /// The calls that hold a contender have lost it.
    fn lose_contender(&mut self, id: ContenderId, cause: LossCause) {
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
            self.linger_over(call);
        }
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
    fn barred(
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
            Err(Failure::Refused {
                kind: Refusal::LeaseNotFound,
                ..
            }) => return self.lose_session(id, LossCause::Revoked),
            Err(failure @ Failure::Refused { .. }) if !opened => {
                let why = match Refused::by(failure) {
                    Refused::PermissionDenied(cause) => Refused::SessionDenied(cause),
                    why => why,
                };
                return self.give_up_session(id, &why);
            }
            Err(failure) => {
                let refused = matches!(failure, Failure::Refused { .. });
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
        self.deadlock.edges.settled(id);
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
            if self.calls.remove_warming(call) {
                self.outputs.push_back(Output::Ready { call });
            }
        }
    }

    /// A barrier told whether the keys of an ambiguous contender exist.
    fn settle_ambiguous(&mut self, id: ContenderId, revision: Revision, found: &[Option<Kv>]) {
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
        for name in &*names {
            self.queues
                .get_mut(name)
                .into_iter()
                .for_each(|queue| queue.hear(self.now));
            self.work.push(name);
        }
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

    /// A read told whether keys exist whose put was refused.
    fn settle(&mut self, ids: Vec<ContenderId>, answer: TxnAnswer) {
        let mut answers = answer.answers.into_iter().skip(1);
        for id in ids {
            let keys = self.contenders.get(id).map_or(0, |it| it.parts().len());
            let found: Vec<Option<Kv>> = answers.by_ref().take(keys).map(OpAnswer::first).collect();
            self.settle_ambiguous(id, answer.revision, &found);
        }
    }

    /// What etcd said to a session's put about its session key, which is not as it was.
    fn session_moved(&mut self, id: SessionId, answer: TxnAnswer) {
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
    fn put(
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
    fn placed(
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
            let deep = found.iter().any(|kv| !contends(&part.family, &kv.key));
            let foreign = found
                .iter()
                .any(|kv| kv.key != part.key.as_bytes() && contends(&part.family, &kv.key));
            if let Some(queue) = self.queues.get_mut(&part.name) {
                queue.hear(now);
                if deep {
                    queue.set_deep();
                }
                if foreign {
                    queue.see_foreign(now);
                }
            }
            contender.placed(at, created, revision, found);
        }
        if contender.is_detached() {
            return self.delete(id);
        }
        self.watch_predecessors(id, revision);
    }

    /// A contender waits: what excludes it is watched from this revision on, or read. Then the head of its names is served.
    fn watch_predecessors(&mut self, id: ContenderId, revision: Revision) {
        let Some(contender) = self.contenders.get(id) else {
            return;
        };
        let names = contender.names().clone();
        let (admitted, group) = (contender.is_admitted(), names.len() > 1);
        if !contender
            .parts()
            .iter()
            .all(|part| part.admitted().is_some() || part.predecessors().are_known())
        {
            self.observe.restart(id);
            self.observe.read(id, true);
        } else if !admitted || group {
            self.watch(id, revision);
            self.read_later(id, false);
        }
        names.iter().for_each(|name| self.work.push(name));
    }

    /// When a contender that waits is read next: early beside a fresh watch, and in time for its call to learn who owns the name.
    fn read_later(&mut self, id: ContenderId, was_read: bool) {
        let Some((contender, name)) = self
            .contenders
            .get(id)
            .and_then(|it| Some((it, it.names().first()?)))
        else {
            return;
        };
        let whole = contender
            .parts()
            .first()
            .is_some_and(|part| self.observe.is_watched(name, &part.family, false));
        let early = self.observe.next_after(self.now, name, id, whole);
        let until = self
            .queues
            .get(name)
            .and_then(|queue| self.calls.waiting(queue.head()?.call)?.until);
        let rest = until.map_or(RELIES, |until| ((until - self.now) / 2).min(RELIES));
        let after = match early {
            Some(early) => early,
            None if was_read => self.jittered(WAITER),
            None => rest,
        };
        self.timers.set(Timer::Read(id), self.now + after);
    }

    /// Watches what matters of the names of a contender, from this revision on.
    fn watch(&mut self, id: ContenderId, revision: Revision) {
        let Some(contender) = self.contenders.get(id) else {
            return;
        };
        let waits = contender.is_in_line();
        let mut wanted: Vec<(Name, Key, bool)> = Vec::new();
        for part in contender.parts() {
            let queue = self.queues.get(&part.name);
            let prefix: Key = match waits {
                // A holder watches its own keys, so that an operator's hand is felt (rule P18). What this process has below the name
                // begins alike, as long as it is of one session.
                false => {
                    let more = queue.is_some_and(|queue| queue.in_line().is_some());
                    match part.key.split_once(&*part.family) {
                        Some((_, child)) if !more => {
                            let lease = child.split('.').next().unwrap_or(child);
                            [&*part.family, lease].concat().into()
                        }
                        _ => continue, // one that waits watches the whole family
                    }
                }
                true => {
                    let near = match self.observe.watch(&part.name) {
                        Some(watch) if watch.prefix != part.family => self.settings.near / 2,
                        _ => self.settings.near,
                    };
                    // A permit may come free long before the last of those before it has gone.
                    let one = part.seat == Seat::Exclusive && part.predecessors().count() > near;
                    let last = part.predecessors().last().filter(|_| one);
                    last.map_or(part.family.clone(), Key::from)
                }
            };
            wanted.push((part.name.clone(), prefix, !waits));
        }
        for (name, prefix, puts) in wanted {
            if self.observe.is_watched(&name, &prefix, puts) {
                continue;
            }
            self.last_id += 1;
            let watch = WatchId::from(self.last_id);
            if let Some(id) = self
                .observe
                .open(self.now, watch, &name, prefix.clone(), puts)
            {
                self.outputs.push_back(Output::Unwatch { id });
            }
            self.observe.restart(id);
            self.outputs.push_back(Output::Watch {
                id: watch,
                prefix,
                from: revision,
                puts,
            });
        }
    }

    /// A contender is to be read; or one that is held is watched from now on.
    pub(super) fn read_due(&mut self, id: ContenderId) {
        let Some(contender) = self.contenders.get(id).filter(|it| !it.is_detached()) else {
            return;
        };
        let Some(created) = contender.created() else {
            return;
        };
        let held = contender.ownership();
        let watched = |part: &Part| {
            self.observe
                .watch(&part.name)
                .is_some_and(|watch| watch.puts)
        };
        let unwatched = !contender.parts().iter().all(watched);
        let held = match held {
            Some(ownership) if unwatched && !ownership.is_asked() => {
                // From its create revision on: whatever happened to its keys since is reported.
                self.watch(id, created);
                let next = self.jittered(HOLDER);
                return self.timers.set(Timer::Read(id), self.now + next);
            }
            held => held.is_some(),
        };
        self.observe.read(id, !held);
    }

    /// Nothing of a put was applied: its contenders are put again, if they are wanted.
    fn unsent(&mut self, session: SessionId, ids: Vec<ContenderId>) {
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
    fn put_failed(&mut self, session: SessionId, ids: Vec<ContenderId>, failure: Failure) {
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
            Failure::Refused {
                kind: Refusal::LeaseNotFound,
                ..
            } => {
                self.unsent(session, ids);
                if let Some(session) = self.sessions.get_mut(session) {
                    session.end(LossCause::Revoked);
                }
                self.lose_session(session, LossCause::Revoked);
            }
            // Nothing comes later, but the keys may be there (rule P34).
            Failure::Refused {
                kind: Refusal::NoSpace,
                ..
            } if !mistake(Mistake::RefusedIsNotApplied) => {
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
            Failure::Refused { .. } if ids.len() > 1 => {
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
            Failure::Refused { .. } => {
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
    fn tried(&mut self, session: SessionId, id: ContenderId, result: Result<TxnAnswer, Failure>) {
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
        for name in &*names {
            self.queues
                .get_mut(name)
                .into_iter()
                .for_each(|queue| queue.hear(self.now));
            self.work.push(name);
        }
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
            None => self.calls.try_plainly(call),
        }
    }

    /// Deletes were answered, or not (rules P24, P34).
    fn deleted(&mut self, deletions: Vec<Deletion>, result: Result<TxnAnswer, Failure>) {
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
                    let call = id.and_then(|id| self.confirming.remove(&id));
                    call.into_iter()
                        .for_each(|call| self.confirm(call, Err(Refused::by(failure.clone()))));
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
    fn gone(&mut self, id: ContenderId) {
        let names = self
            .contenders
            .get(id)
            .filter(|it| !it.is_detached())
            .map(|it| it.names().clone());
        for name in names.iter().flat_map(|names| names.iter()) {
            self.queues
                .get_mut(name)
                .into_iter()
                .for_each(|queue| queue.hear(self.now));
        }
        self.remove(id);
    }

    /// A read came from a member that lags, or from an etcd that has lost its history (rules P20, P35): a write finds out which.
    fn read_stale(&mut self, items: Vec<ReadItem>) {
        let session = items
            .first()
            .and_then(|item| self.contenders.get(item.contender))
            .map(|it| it.session());
        if let Some(id) = session.filter(|_| !mistake(Mistake::OnlyAWipeIsLostHistory)) {
            if let Some(session) = self.sessions.get_mut(id) {
                session.barrier_mut().suspect();
                self.dirty.insert(id);
            }
        }
        self.read_again(items);
    }

    fn read_again(&mut self, items: Vec<ReadItem>) {
        let mut ids: Vec<ContenderId> = items.into_iter().map(|item| item.contender).collect();
        ids.dedup();
        self.observe.read_done(&ids);
        for id in ids {
            let pause = self.pause(self.unreachable.failures());
            if self
                .contenders
                .get(id)
                .is_some_and(|it| it.created().is_some() && !it.is_detached())
            {
                self.timers.set(Timer::Read(id), self.now + pause);
            }
        }
    }

    /// A session is to be barred.
    fn bar(&mut self, id: Option<SessionId>) {
        if let Some((id, session)) = id.and_then(|id| Some((id, self.sessions.get_mut(id)?))) {
            session.barrier_mut().ask();
            self.dirty.insert(id);
        }
    }

    /// A read was answered, or not.
    fn read(&mut self, items: Vec<ReadItem>, sent: Moment, result: Result<TxnAnswer, Failure>) {
        let Ok(answer) = result else {
            return self.read_again(items);
        };
        let mut ids: Vec<ContenderId> = items.iter().map(|item| item.contender).collect();
        ids.dedup();
        self.observe.read_done(&ids);
        let mut answers = answer.answers.into_iter();
        // A group's keys are contended if one of them is.
        let mut behind: BTreeMap<ContenderId, bool> = BTreeMap::new();
        for item in &items {
            let many = match item.held {
                true => 2,
                false => 1 + usize::from(item.owner && !item.deep),
            };
            let found: Vec<Vec<Kv>> = answers.by_ref().take(many).map(OpAnswer::found).collect();
            match item.held {
                true => {
                    if let Some(contended) = self.saw_behind(item, found) {
                        *behind.entry(item.contender).or_default() |= contended;
                    }
                }
                false => self.saw_before(item, answer.revision, found),
            }
        }
        for (id, contended) in behind {
            let now = self.now;
            let contender = self.contenders.get_mut(id);
            if let Some(ownership) = contender.and_then(|it| it.ownership_mut()) {
                ownership.read(now, sent, contended);
            }
        }
        for id in ids {
            self.after_read(id, answer.revision);
        }
    }

    /// Whether a contender waits behind a held key; `None` if that is not known.
    fn saw_behind(&mut self, item: &ReadItem, found: Vec<Vec<Kv>>) -> Option<bool> {
        let contender = self.contenders.get(item.contender)?;
        let part = contender.parts().get(item.part)?;
        let lease = self
            .sessions
            .get(contender.session())
            .and_then(|session| session.lease());
        let retained = matches!(contender.state(), State::Retained { .. });
        if contender.created() != Some(item.created) {
            return None;
        }
        let mut found = found.into_iter();
        let own = found.next().and_then(|own| own.into_iter().next());
        let lost = match own.filter(|kv| kv.create_revision == item.created) {
            Some(kv) if retained || Some(kv.lease) == lease => None,
            Some(_) => Some(LossCause::Overwritten),
            None => Some(LossCause::Deleted),
        };
        if let Some(cause) = lost {
            self.own_key_gone(item.contender, cause);
            return None;
        }
        let others: Vec<Kv> = found.next().unwrap_or_default();
        let mode = contender.mode();
        let deeper = |kv: &Kv| !contends(&part.family, &kv.key);
        if others.first().is_some_and(deeper) && !item.deep {
            // One key is not enough to see a contender among the deeper keys (rule P2).
            self.queues.get_mut(&part.name)?.set_deep();
            self.observe.read(item.contender, true);
            return None;
        }
        // What this process itself has below the name keeps no other process waiting for long.
        let mut all = 0;
        let behind = others.iter().filter(|kv| !deeper(kv)).any(|kv| {
            let excluded = mode.is_excluded_by(Seat::of_key(&kv.key));
            all += usize::from(!excluded);
            let full = mode.room().is_some_and(|room| all > room + 1);
            let waits = (excluded && kv.create_revision > item.created) || full;
            waits && self.contenders.by_key(&kv.key).is_none()
        });
        if behind {
            self.queues.get_mut(&part.name)?.see_foreign(self.now);
        }
        Some(behind)
    }

    /// What is ahead of a waiting key.
    fn saw_before(&mut self, item: &ReadItem, revision: Revision, found: Vec<Vec<Kv>>) {
        let lease = self
            .contenders
            .get(item.contender)
            .and_then(|it| self.sessions.get(it.session())?.lease());
        let Some(contender) = self
            .contenders
            .get_mut(item.contender)
            .filter(|it| it.is_in_line() && it.created() == Some(item.created))
        else {
            return;
        };
        let Some(part) = contender.parts().get(item.part) else {
            return;
        };
        let (name, family, mode) = (part.name.clone(), part.family.clone(), contender.mode());
        let mut found = found.into_iter();
        let older = found.next().unwrap_or_default();
        let own = older.iter().find(|kv| kv.key == part.key.as_bytes());
        match own.filter(|kv| kv.create_revision == item.created) {
            Some(kv) if Some(kv.lease) == lease => {}
            Some(_) => return self.own_key_gone(item.contender, LossCause::Overwritten),
            None => return self.own_key_gone(item.contender, LossCause::Deleted),
        }
        let excludes = |kv: &&Kv| {
            kv.create_revision < item.created
                && contends(&family, &kv.key)
                && mode.is_excluded_by(Seat::of_key(&kv.key))
        };
        let oldest = match item.deep {
            true => {
                let mut contenders = older
                    .iter()
                    .filter(|kv| kv.create_revision < item.created && contends(&family, &kv.key));
                older.iter().find(excludes).or(contenders.next()).cloned()
            }
            false => found.next().and_then(|oldest| oldest.into_iter().next()),
        };
        contender.read(item.part, revision, older);
        let admitted = contender
            .parts()
            .get(item.part)
            .is_some_and(|part| part.admitted().is_some());
        let Some(queue) = self.queues.get_mut(&name) else {
            return;
        };
        queue.hear(self.now);
        match oldest {
            _ if admitted => queue.set_owner(None),
            // Who it is that owns the name was not read.
            None => {
                if !item.owner {
                    self.observe.read(item.contender, true);
                }
            }
            Some(kv) if !contends(&family, &kv.key) => {
                queue.set_deep();
                self.observe.read(item.contender, true);
            }
            Some(kv) => {
                queue.see_foreign(self.now);
                queue.set_owner(Some(kv.value.into()));
            }
        }
    }

    /// A contender was read: it is watched from this revision on, and read again later; its names may have a next step.
    fn after_read(&mut self, id: ContenderId, revision: Revision) {
        let Some(contender) = self.contenders.get(id).filter(|it| !it.is_detached()) else {
            return;
        };
        let names = contender.names().clone();
        match contender.state() {
            State::Waiting { .. } if !contender.is_admitted() || names.len() > 1 => {
                self.watch(id, revision);
                self.read_later(id, true);
            }
            State::Owned(_)
                if contender.parts().iter().any(|part| {
                    self.observe
                        .watch(&part.name)
                        .is_some_and(|watch| watch.puts)
                }) =>
            {
                let next = self.jittered(HOLDER);
                self.timers.set(Timer::Read(id), self.now + next);
            }
            _ => {}
        }
        names.iter().for_each(|name| self.work.push(name));
    }

    /// A key of ours is gone, or was put by another client.
    fn own_key_gone(&mut self, id: ContenderId, cause: LossCause) {
        let Some(contender) = self.contenders.get(id) else {
            return;
        };
        let session = contender.session();
        match contender.state() {
            State::Owned(ownership) if !ownership.is_lost() => self.lose_contender(id, cause),
            // What is left of it is in the way: out with it before the queue goes on.
            State::Waiting { .. } => self.delete(id),
            _ => return,
        }
        // Perhaps the whole lease is gone: the sooner that is known, the sooner the others go on.
        self.renew(session);
    }

    /// A watch reported something.
    pub(super) fn watch_event(&mut self, watch: WatchId, event: WatchEvent) {
        let Some(name) = self.observe.name_of(watch).cloned() else {
            return;
        };
        let event = match event {
            WatchEvent::Changed(event) => event,
            WatchEvent::Compacted => {
                self.observe.close(&name);
                let queue = self.queues.get(&name);
                let known = queue
                    .into_iter()
                    .flat_map(|queue| queue.held().chain(queue.in_line()));
                known
                    .collect::<Vec<_>>()
                    .into_iter()
                    .for_each(|id| self.observe.read(id, true));
                return;
            }
        };
        match event {
            Event::Delete { key, revision } => match self.contenders.by_key(&key) {
                Some(id) => self.own_key_deleted(id, &name, &key, revision),
                None => self.other_key_deleted(&name, &key, revision),
            },
            Event::Put(kv) => {
                let Some(contender) = self
                    .contenders
                    .by_key(&kv.key)
                    .and_then(|id| Some((id, self.contenders.get(id)?)))
                else {
                    return;
                };
                let lease = self
                    .sessions
                    .get(contender.1.session())
                    .and_then(|session| session.lease());
                let created = contender.1.created();
                let other = created.is_some_and(|created| {
                    kv.create_revision > created
                        || (kv.create_revision == created && Some(kv.lease) != lease)
                });
                if other {
                    self.own_key_gone(contender.0, LossCause::Overwritten);
                }
            }
        }
    }

    fn own_key_deleted(&mut self, id: ContenderId, name: &Name, key: &[u8], revision: Revision) {
        let Some(contender) = self.contenders.get_mut(id) else {
            return;
        };
        match contender.created() {
            // Of an earlier incarnation it says nothing (rule P14).
            Some(created)
                if revision > created || mistake(Mistake::DeleteOfAnEarlierIncarnation) =>
            {
                self.own_key_gone(id, LossCause::Deleted);
            }
            Some(_) => {}
            // It is being put: then the answer will show what is not any more.
            None => drop(contender.predecessor_deleted(name, key, revision)),
        }
    }

    /// That a predecessor has gone does not make a contender the owner, only that all have (rule P14).
    fn other_key_deleted(&mut self, name: &Name, key: &[u8], revision: Revision) {
        let Some(id) = self.queues.get(name).and_then(|queue| queue.in_line()) else {
            return;
        };
        let Some(contender) = self.contenders.get_mut(id) else {
            return;
        };
        let last = contender
            .parts()
            .iter()
            .find(|part| part.name == *name)
            .and_then(|part| part.predecessors().last())
            .map(str::as_bytes)
            == Some(key);
        if last && mistake(Mistake::PredecessorGoneIsOwnership) {
            contender.read(0, revision, Vec::new());
        }
        if !contender.predecessor_deleted(name, key, revision) {
            return;
        }
        if contender.is_admitted() {
            return self.work.push(name);
        }
        let alone = self
            .observe
            .watch(name)
            .is_some_and(|watch| watch.prefix.as_bytes() == key);
        if alone {
            self.observe.read(id, true);
        }
    }

    /// The lease of a retention is there, or is not.
    fn reserved(&mut self, id: ContenderId, result: Result<Response, Failure>) {
        let Some(kept) = self.retentions.get_mut(&id) else {
            if let Ok(Response::Granted { lease, .. }) = result {
                self.revocations.push(lease);
            }
            return;
        };
        kept.under_way = false;
        match result {
            Ok(Response::Granted { lease, .. }) => {
                kept.lease = Some(lease);
                self.retain_on(id);
            }
            Ok(other) => self.retain_later(id, Failure::Unknown(unexpected(&other))),
            Err(failure) => self.retain_later(id, failure),
        }
    }

    /// The keys of a retention have its lease, or have not.
    fn retained(&mut self, id: ContenderId, lease: LeaseId, result: Result<TxnAnswer, Failure>) {
        let Some(kept) = self.retentions.get_mut(&id) else {
            return self.revocations.push(lease);
        };
        kept.under_way = false;
        let answer = match result {
            Ok(answer) => answer,
            Err(failure) => {
                if matches!(
                    failure,
                    Failure::Refused {
                        kind: Refusal::LeaseNotFound,
                        ..
                    }
                ) {
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
    fn retain_later(&mut self, id: ContenderId, failure: Failure) {
        let Some(kept) = self.retentions.get_mut(&id) else {
            return;
        };
        let (call, until, failures) = (kept.call, kept.until, kept.failures);
        kept.failures += 1;
        let pause = match failure {
            Failure::Refused { .. } => {
                self.confirm(call, Err(Refused::by(failure)));
                self.pause(SLOWLY)
            }
            Failure::Unavailable(_) | Failure::Unknown(_) => self.pause(failures),
        };
        self.timers
            .set(Timer::Retention(id), until.min(self.now + pause));
    }

    /// A cycle was found from a contender of ours: a group steps back, else the victim is taken out of it by one transaction.
    fn cut(&mut self, id: ContenderId, cycle: Cycle) {
        let group = self
            .contenders
            .get(id)
            .and_then(|it| it.purpose().group)
            .filter(|call| self.may_step_back(*call));
        if let Some(group) = group {
            return self.step_back(group);
        }
        let Some((call, edges)) = cycle
            .closing_edge()
            .and_then(|edge| self.deadlock.edges.victim(edge))
        else {
            return;
        };
        if self.calls.waiting(call).is_none() || !self.deadlock.is_ours_to_cut(call, &cycle) {
            return;
        }
        if mistake(Mistake::CycleUnconfirmed) {
            return self.refuse_deadlocked(call, &cycle);
        }
        let held = edges
            .first()
            .and_then(|edge| self.contenders.by_key(edge.held.0.as_bytes()));
        let Some(id) = held.and_then(|held| Some(self.contenders.get(held)?.session())) else {
            return;
        };
        let session = self.sessions.get(id);
        let fence = session.filter(|it| it.takes_edges()).map(|it| it.fence());
        let (Some(fence), Some(when)) = (fence, cycle.conditions()) else {
            return;
        };
        self.deadlock.edges.aborting(&edges);
        let keys = edges
            .iter()
            .map(|edge: &Edge| edge.key(&self.root))
            .collect();
        let txn = transactions::abort(fence.as_ref(), when, keys);
        self.send(
            Request::Txn(txn),
            Exchange::Abort(Box::new(Abort {
                session: id,
                call,
                edges,
                cycle,
            })),
        );
    }

    /// How a write of edges ended. If the session key is not as it was known, the session is barred, which tells how it is.
    fn outcome(&mut self, id: SessionId, result: Result<TxnAnswer, Failure>) -> edges::Outcome {
        match result {
            Ok(answer) if answer.succeeded => edges::Outcome::Applied,
            Ok(answer) => {
                let fence = self.sessions.get(id).and_then(|session| session.fence());
                let found = answer.answers.into_iter().next().and_then(OpAnswer::first);
                if fence
                    .is_some_and(|fence| Some(fence.modified) != found.map(|kv| kv.mod_revision))
                {
                    self.bar(Some(id));
                }
                edges::Outcome::Refused
            }
            Err(Failure::Unavailable(_)) => edges::Outcome::Refused,
            Err(Failure::Refused { kind, .. }) if kind != Refusal::NoSpace => {
                edges::Outcome::Refused
            }
            Err(_) => edges::Outcome::Unknown,
        }
    }

    /// The abort of a cycle was answered, or not.
    fn aborted(&mut self, abort: Abort, outcome: edges::Outcome) {
        let Abort {
            call, edges, cycle, ..
        } = abort;
        let barred = self.deadlock.edges.aborted(&edges, outcome);
        self.bar(barred);
        if outcome == edges::Outcome::Applied {
            self.refuse_deadlocked(call, &cycle);
        }
    }

    fn refuse_deadlocked(&mut self, call: crate::ids::CallId, cycle: &Cycle) {
        let Some(names) = self.calls.get(call).map(|it| it.names().clone()) else {
            return;
        };
        let (first, blockers) = cycle.blockers();
        let blocked = |name: &Name| {
            first
                .as_ref()
                .is_some_and(|key| contends(&name.family(), key.as_bytes()))
        };
        let name = names.iter().position(blocked).unwrap_or(0);
        self.refuse(
            call,
            Refused::Deadlock {
                name,
                cycle: blockers,
            },
        );
    }
}

/// The transaction in an answer.
fn transaction(result: Result<Response, Failure>) -> Result<TxnAnswer, Failure> {
    match result? {
        Response::Txn(answer) => Ok(answer),
        other => Err(Failure::Unknown(unexpected(&other))),
    }
}

fn unexpected(response: &Response) -> Cause {
    Arc::from(Box::from(format!(
        "an answer that was not asked for: {response:?}"
    )))
}
