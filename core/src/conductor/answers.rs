//! Answers: what etcd's responses and events mean for contenders, and what is read and watched because of them.

use std::sync::Arc;

use super::{Core, Exchange, Timer};
use crate::call::{Call, Stage};
use crate::contender::{Contender, State};
use crate::ids::{CallId, ContenderId, NameId, Revision, SessionId, WatchId, contends, lease_of};
use crate::loss::LossCause;
use crate::moment::Moment;
use crate::output::{Output, Owner, Refused};
use crate::ownership::SETTLED;
use crate::request::{Event, Failure, Kv, Refusal, Request, TxnAnswer};
use crate::seat::Seat;
use crate::shutdown::Shutdown;
use crate::steps::step;
use crate::timers::SLOWLY;
use crate::transactions::{self, Deletion, Description, LOCKS, Placement};
use crate::view::{OFTEN, RELIES, Read, WAITER, Watch, Whose};

/// Puts and deletes.
impl Core {
    /// Sends the puts of a session that are ready.
    pub(super) fn flush_puts(&mut self, id: SessionId) {
        while self.may_send() {
            let Some(session) = self.sessions.get_mut(id) else { return };
            let Some((lease, fence)) = session.fence() else { return };
            let narrow = session.puts.is_narrow();
            let (names, calls) = (&self.names, &self.calls);
            let group = |lead: &ContenderId| {
                let call = names.contender(*lead).filter(|it| it.is_group)?.bound;
                calls.get(call?).map(|call| call.own.to_vec())
            };
            // One beside another of its name goes alone (rule P5), and so does a single try.
            let pending = |lead: &ContenderId| match names.contender(*lead)? {
                it @ Contender { state: State::Pending, .. } => {
                    let alone = it.tries || matches!(it.seat, Seat::Nested { .. });
                    Some(if alone { LOCKS } else { group(lead).map_or(1, |group| group.len()) })
                }
                _ => None,
            };
            let Some(leads) = session.puts.next(pending) else { return };
            let first = leads.first().and_then(|id| names.contender(*id));
            let tries = first.is_some_and(|it| it.tries);
            let ids = leads.iter().flat_map(|lead| group(lead).unwrap_or_else(|| vec![*lead]));
            let ids: Vec<ContenderId> = ids.collect();
            for id in &ids {
                self.names.contender_mut(*id).into_iter().for_each(|it| it.sent(lease));
            }
            let placements: Vec<Placement> =
                ids.iter().filter_map(|id| self.placement(*id)).collect();
            let deletions = match tries || narrow {
                true => Vec::new(),
                false => self.deletions_with_puts(placements.len()),
            };
            let before = transactions::delete(&deletions);
            let txn = transactions::put(fence, lease, &placements, tries, before);
            self.send(Request::Txn(txn), Exchange::Put(id, leads.len(), ids, deletions));
        }
    }

    /// Takes the deletions that go in one transaction with this number of puts (rule P7).
    fn deletions_with_puts(&mut self, puts: usize) -> Vec<Deletion> {
        // What has lingered would soon be deleted in a transaction of its own: a commit more.
        self.delete_lingered(LOCKS);
        let alive = |id| self.sessions.get(id).is_some_and(|it| !it.is_lost());
        let likely = |it: &Deletion| it.created.is_some() && alive(it.session);
        self.outbox.next_with_puts(LOCKS.saturating_sub(puts), likely)
    }

    /// What is put for a contender.
    fn placement(&self, id: ContenderId) -> Option<Placement> {
        let name = self.names.get(id.name)?;
        let contender = name.get(id.number)?;
        Some(Placement {
            key: contender.key.clone()?,
            record: self.value_of(contender, &contender.record),
            family: name.family.clone(),
            // Of the contenders of nested calls only the oldest is read, once it is that.
            all: match contender.seat {
                Seat::Nested { .. } => false,
                Seat::Exclusive => self.view.is_watched(id.name) && name.rests_until.is_none(),
                Seat::Shared(_) | Seat::Permit(_) => true,
            },
        })
    }

    /// A transaction of puts, and perhaps of deletions, was answered, or not (rules P8 to P11).
    pub(super) fn put(
        &mut self,
        session: SessionId,
        ids: Vec<ContenderId>,
        deletions: Vec<Deletion>,
        result: Result<TxnAnswer, Failure>,
    ) {
        match result {
            Ok(answer) if answer.succeeded => {
                let revision = answer.revision;
                let placed = transactions::placed(answer, ids.len());
                for (id, placed) in ids.into_iter().zip(placed) {
                    self.placed(id, revision, placed);
                }
                self.are_gone(deletions);
            }
            // The session key is not as it was, or a key to be deleted is not: the puts, sent again alone, show which.
            Ok(answer) if !deletions.is_empty() => {
                let keys = ids.len();
                self.put_again(session, ids, Some(keys));
                self.deleted(deletions, Ok(answer));
            }
            Ok(answer) if answer.answers.is_empty() => {
                self.put_again(session, ids, None);
                let session = self.sessions.get_mut(session);
                session.into_iter().for_each(|it| it.bar(self.now, false));
            }
            Ok(answer) => {
                self.put_again(session, ids.clone(), None);
                self.tried(&ids, answer);
            }
            // For a put or for a deletion: sent again apart, they show which (rule P9).
            Err(Failure::Refused(Refusal::PermissionDenied | Refusal::Other, _))
                if !deletions.is_empty() =>
            {
                let (puts, deletes) = (ids.len(), deletions.len());
                self.put_again(session, ids, Some(puts));
                self.outbox.deletions.again(deletions, Some(deletes));
            }
            Err(failure) => {
                self.outbox.deletions.again(deletions, None);
                self.put_failed(session, ids, failure);
            }
        }
    }

    /// The put of a contender was applied.
    fn placed(
        &mut self,
        id: ContenderId,
        revision: Revision,
        (previous, found): (Option<Revision>, Vec<Kv>),
    ) {
        let now = self.now;
        let Some(name) = self.names.get_mut(id.name) else { return };
        let family = name.family.clone();
        let Some(contender) = name.get_mut(id.number) else { return };
        contender.placed(revision, previous, &found);
        let own = contender.key.clone();
        let is_own = |kv: &Kv| own.as_ref().is_some_and(|own| own.as_bytes() == kv.key);
        name.see(now, found.iter().any(|kv| !is_own(kv) && contends(&family, &kv.key)));
        name.wait(id.number);
        if self.is_unwanted(id) {
            self.delete(id);
        }
        self.attend(id);
    }

    /// A single try has met keys below its names (rule P11).
    fn tried(&mut self, ids: &[ContenderId], answer: TxnAnswer) {
        for id in ids {
            self.names.get_mut(id.name).into_iter().for_each(|name| name.heard = Some(self.now));
        }
        // No owner: the oldest key of each name lies deeper, is a key of this process that goes, or has gone; or the session key
        // changed. The core puts again, plainly.
        let Some(first) = ids.first() else { return };
        let going = |id: &ContenderId, kv: &Kv| {
            let name = self.names.get(id.name);
            name.is_some_and(|name| name.is_going(&kv.key, kv.lease, &self.sessions))
        };
        let counts = |kv: &Kv| !ids.iter().any(|id| going(id, kv));
        let owner = ids.iter().zip(answer.firsts()).enumerate().find_map(|(at, (id, kv))| {
            let family = &self.names.get(id.name)?.family;
            kv.filter(|kv| contends(family, &kv.key) && counts(kv)).map(|kv| (at, kv))
        });
        let call = self.served_by(*first);
        if let Some(call) = call.filter(|call| self.calls.get(*call).is_some_and(Call::is_try))
            && let Some((name, kv)) = owner
        {
            let owner = Some(self.owner_of(first.name, kv));
            self.refuse(call, Refused::Held { name, owner });
        }
    }

    /// The call that a contender in line would serve.
    fn served_by(&self, id: ContenderId) -> Option<CallId> {
        let name = self.names.get(id.name)?;
        name.serves(name.get(id.number).filter(|it| !it.detached)?, &self.calls)
    }

    /// Nothing of a put was applied: those of its contenders that are still wanted are put again. `room`: with at most this number of
    /// keys in a transaction, and nothing else.
    fn put_again(&mut self, session: SessionId, ids: Vec<ContenderId>, room: Option<usize>) {
        let mut leads = Vec::new();
        for id in ids {
            let Some(contender) = self.names.contender_mut(id) else { continue };
            (contender.state, contender.tries) = (State::Pending, false);
            let call = contender.bound.filter(|_| contender.is_group);
            let group = call.and_then(|call| self.calls.get(call));
            let leads_group = group.is_none_or(|call| call.own.first() == Some(&id));
            self.names.touch(id.name);
            match self.is_unwanted(id) {
                true => self.remove(id),
                false if leads_group => leads.push(id),
                false => {}
            }
        }
        if let Some(session) = self.sessions.get_mut(session) {
            session.puts.again(leads, room);
        }
    }

    /// A put has no response, or was refused.
    fn put_failed(&mut self, session: SessionId, ids: Vec<ContenderId>, failure: Failure) {
        match failure {
            Failure::Unknown(_) => {
                for id in ids {
                    let Some(session) = self.sessions.get_mut(session) else {
                        self.remove(id); // it goes with its lease
                        continue;
                    };
                    session.doubt(self.now, id);
                    let contender = self.names.contender_mut(id);
                    contender.into_iter().for_each(|it| it.state = State::Unsettled);
                }
            }
            Failure::Unavailable(_) => self.put_again(session, ids, None),
            Failure::Refused(Refusal::LeaseNotFound, _) => {
                self.put_again(session, ids, None);
                self.lose_session(session, LossCause::Gone);
            }
            Failure::Refused(kind, _) => {
                // Nothing comes later, but the keys may be there (rule P34).
                let applied = kind == Refusal::NoSpace;
                let group = |id: &ContenderId| {
                    let contender = self.names.contender(*id).filter(|it| it.is_group);
                    contender.and_then(|it| it.bound)
                };
                let first = ids.first().and_then(group);
                let alone =
                    ids.len() == 1 || ids.iter().all(|id| first.is_some() && group(id) == first);
                if !alone && !applied {
                    // One bad name fails all: they go in smaller transactions, but no group is torn (rules P9, P13).
                    let keys = ids.len();
                    return self.put_again(session, ids, Some(keys / 2));
                }
                let mut served: Vec<_> = ids.iter().filter_map(|id| self.served_by(*id)).collect();
                served.dedup();
                let why = Refused::by(failure);
                for id in ids {
                    match self.names.contender_mut(id).filter(|_| applied) {
                        Some(contender) => {
                            contender.state = State::Unsettled;
                            self.delete(id);
                        }
                        None => self.remove(id),
                    }
                }
                served.into_iter().for_each(|call| self.refuse(call, why.clone()));
            }
        }
    }

    /// Deletes were answered, or not (rules P24, P34).
    pub(super) fn deleted(
        &mut self,
        mut deletions: Vec<Deletion>,
        result: Result<TxnAnswer, Failure>,
    ) {
        match result {
            Ok(answer) => {
                let gone = transactions::deleted(&mut deletions, answer);
                self.outbox.deletions.again(deletions, None);
                self.are_gone(gone);
            }
            Err(Failure::Unavailable(_) | Failure::Unknown(_)) => {
                self.outbox.deletions.again(deletions, None)
            }
            Err(failure) => {
                let denied = matches!(failure, Failure::Refused(Refusal::PermissionDenied, _));
                if let [Deletion { contender, session, created, .. }] = *deletions {
                    let call = self.names.contender(contender).and_then(|it| it.confirms);
                    let stage =
                        call.and_then(|call| self.calls.get_mut(call)).map(|it| &mut it.stage);
                    if let Some(Stage::Releasing { refused, .. }) = stage {
                        *refused = Some(Refused::by(failure));
                    }
                    if denied && created.is_none() {
                        // Probably the put was denied too. If it was applied, the key goes with its lease.
                        self.retire(session);
                        return self.are_gone(deletions);
                    }
                }
                // Keys go with their lease.
                let left = |deletion: &Deletion| self.sessions.get(deletion.session).is_some();
                let (kept, gone): (Vec<_>, Vec<_>) = deletions.into_iter().partition(left);
                if self.outbox.delete_refused(kept) {
                    let pause = self.jitter.pause(SLOWLY);
                    self.timers.set_by(Timer::Deletes, self.now + pause);
                }
                self.are_gone(gone);
            }
        }
    }

    /// The keys of these are gone.
    fn are_gone(&mut self, deletions: Vec<Deletion>) {
        for deletion in deletions {
            let id = deletion.contender;
            self.names.get_mut(id.name).into_iter().for_each(|name| name.heard = Some(self.now));
            self.remove(id);
            self.outbox.deleted(id);
        }
    }
}

/// Reads and watches.
impl Core {
    /// Sends the reads that are wanted, those of contenders that wait first.
    pub(super) fn flush_reads(&mut self) {
        for urgent in [true, false] {
            // As two keys: each is read by two operations.
            while self.may_send()
                && let Some(ids) =
                    self.view.line(urgent).next(|id| self.names.contender(*id)?.to_read.map(|_| 2))
            {
                let read = |id: ContenderId| {
                    let contender = self.names.contender_mut(id)?;
                    contender.to_read = None;
                    contender.read_at.get_or_insert(self.now + RELIES); // it is being read
                    Read::of(id, contender)
                };
                let reads: Vec<Read> = ids.into_iter().filter_map(read).collect();
                let txn = transactions::reads(reads.iter().flat_map(Read::ops).collect());
                self.send(Request::Txn(txn), Exchange::Read(urgent, reads));
            }
        }
    }

    /// Has a contender read as soon as may be; of a name with very many keys below it, at most once a second.
    pub(super) fn want_read(&mut self, id: ContenderId, urgent: bool) {
        let Some(name) = self.names.get_mut(id.name) else { return };
        if let Some(at) = name.rests_until.filter(|at| *at > self.now) {
            return self.read_at(id, at);
        }
        let Some(contender) = name.get_mut(id.number) else { return };
        let readable = matches!(contender.state, State::Waiting | State::Held(_));
        if readable && contender.to_read < Some(urgent) {
            contender.to_read = Some(urgent);
            self.view.line(urgent).push(id);
        }
    }

    /// Does what a contender needs: reads what is ahead of one that waits, or watches what excludes it; watches one that has been held
    /// for a second, and writes its record.
    pub(super) fn attend(&mut self, id: ContenderId) {
        let now = self.now;
        let Some(name) = self.names.get_mut(id.name) else { return };
        let observed = name.is_observed(id.number);
        let Some(contender) = name.get_mut(id.number) else { return };
        let due = contender.read_at.take_if(|at| *at <= now).is_some();
        let (bound, is_read) = (contender.bound, contender.ahead.is_some());
        let waits = contender.admitted.is_none() || contender.is_group;
        match &mut contender.state {
            State::Waiting if !observed => contender.read_at = None,
            State::Waiting if due || !is_read => self.want_read(id, true),
            // One of a group that is admitted waits for the others.
            State::Waiting if waits => {
                self.watch(id);
                self.read_later(id);
            }
            State::Held(ownership) if !ownership.lost => {
                let session = contender.session;
                let (asked, settled) = (ownership.asked.is_some(), ownership.since + SETTLED);
                if ownership.record_due().is_some_and(|due| due <= now) {
                    ownership.named = ownership.first();
                    self.outbox.records.push(id);
                }
                let guarded = self.view.get(id.name, Whose::Holds(session)).is_some();
                if due && (asked || guarded) {
                    self.want_read(id, asked);
                } else if due || settled <= now {
                    self.watch(id);
                } else if !guarded {
                    contender.read_at =
                        Some(contender.read_at.map_or(settled, |at| at.min(settled)));
                }
                let contender = self.names.contender(id);
                let due = contender.and_then(Contender::due).filter(|due| *due > now);
                due.into_iter().for_each(|due| self.timers.set_by(Timer::Contender(id), due));
            }
            _ => {}
        }
        self.names.touch(id.name);
        self.touch_bound(bound);
    }

    /// A contender is to be read, or begins to be watched, at this moment.
    pub(super) fn read_at(&mut self, id: ContenderId, at: Moment) {
        if let Some(contender) = self.names.contender_mut(id) {
            contender.read_at = Some(at);
            contender.due().into_iter().for_each(|due| self.timers.set(Timer::Contender(id), due));
        }
    }

    /// When a contender that waits is read next: early beside a fresh watch, and in time for its call to learn who owns the name.
    fn read_later(&mut self, id: ContenderId) {
        let Some(name) = self.names.get(id.name) else { return };
        let watch = self.view.get(id.name, Whose::Waits);
        // One of a group that is admitted waits for the others.
        let admitted = name.get(id.number).is_some_and(|it| it.admitted.is_some());
        let head = name.head(&self.calls).map(|(_, head)| head);
        let until = head.and_then(|head| head.until);
        // A single try is refused once nothing was read for the connect time-out, which may be shorter than the pause of others.
        let owned = name.owner.is_some() && !head.is_some_and(Call::is_try);
        let after = match watch.and_then(|watch| watch.early(self.now)) {
            Some(early) => early,
            None if owned || admitted => self.jitter.of(WAITER),
            None => until.map_or(RELIES, |until| ((until - self.now) / 2).clamp(OFTEN, RELIES)),
        };
        self.read_at(id, self.now + after);
    }

    /// Watches what matters of a contender's name, unless that is watched. Closes the watches of the name that no contender needs
    /// any more.
    fn watch(&mut self, id: ContenderId) {
        let Some(name) = self.names.get(id.name) else { return };
        // A watch on all keys of a crowded name would bring an event for each key below it.
        let near = if name.rests_until.is_some() { 0 } else { self.settings.near };
        let Some(contender) = name.get(id.number) else { return };
        let Some(watched) = contender.watched(near) else { return };
        let is_held = contender.ownership().is_some();
        let whose = if is_held { Whose::Holds(contender.session) } else { Whose::Waits };
        let closed = self.view.close(id.name, |whose| match whose {
            Whose::Waits => name.in_line().next().is_none(),
            Whose::Holds(session) => !name.held().any(|(_, it)| it.session == session),
        });
        self.outputs.extend(closed);
        self.outputs.extend(self.view.open(self.now, (id.name, whose), watched));
        if let Some(contender) = self.names.contender_mut(id).filter(|_| is_held) {
            contender.read_at = None;
        }
    }

    /// Reads have no response, or a stale one: they are sent again.
    pub(super) fn read_again(&mut self, reads: &[Read], stale: bool, failures: u32) {
        if stale {
            self.suspect_history(reads);
        }
        for read in reads {
            let pause = self.jitter.pause(failures);
            self.read_at(read.contender, self.now + pause);
        }
    }

    /// Reads came from a member that lags, or from an etcd that has lost its history (rules P20, P35): a write finds out which.
    fn suspect_history(&mut self, reads: &[Read]) {
        let contenders = reads.iter().filter_map(|read| self.names.contender(read.contender));
        let mut sessions = contenders.map(|it| (it.session, it.wish.ttl_secs));
        let writes = |id: &SessionId| self.sessions.get(*id).is_some_and(|it| !it.is_lost());
        let first = sessions.clone().next();
        let session = match (sessions.find(|(id, _)| writes(id)), first) {
            (Some((id, _)), _) => id,
            // One that is lost writes nothing.
            (None, Some((_, ttl_secs))) if self.shutdown == Shutdown::Not => {
                self.sessions.choose(self.now, ttl_secs)
            }
            (None, _) => return,
        };
        let session = self.sessions.wake(session);
        session.into_iter().for_each(|it| it.bar(self.now, true));
    }

    /// Reads were answered.
    pub(super) fn read(&mut self, reads: Vec<Read>, answer: TxnAnswer) {
        let mut answers = answer.answers.into_iter();
        for read in reads {
            let seen = read.seen(&mut answers);
            self.saw(&read, seen, answer.revision);
            self.attend(read.contender);
        }
    }

    /// Takes in what a read shows of a contender.
    fn saw(&mut self, read: &Read, seen: Vec<Kv>, revision: Revision) {
        let id = read.contender;
        let Some(name) = self.names.get_mut(id.name) else { return };
        name.note_below(self.now, &seen);
        if name.rests_until.is_some() && !std::mem::replace(&mut self.has_met_crowd, true) {
            self.outputs.push_back(Output::Crowded(name.text.clone()));
        }
        let Some(contender) = name.get_mut(id.number) else { return };
        let waits = matches!(contender.state, State::Waiting);
        if !waits && contender.ownership().is_none() {
            return;
        }
        if let Some(cause) = contender.compare(revision, &seen) {
            return self.own_key_gone(id, cause);
        }
        if contender.modified.is_none() {
            return self.want_read(id, true);
        }
        // The contender was granted after the read was sent, so the rest of the read is about another state.
        if waits != read.up_to.is_some() {
            return;
        }
        let others = match waits {
            true => {
                contender.read(revision, &seen);
                contender.admitted.is_none()
            }
            false => {
                let is_ours = |key: &[u8]| lease_of(key).is_some_and(|it| self.sessions.have(it));
                contender.is_contended(&seen, is_ours)
            }
        };
        if let Some(ownership) = contender.ownership_mut() {
            ownership.read(self.now, revision, others);
        }
        let whole = seen.into_iter().find(|kv| waits && others && kv.lease.is_some());
        // If so, the read did not include the key of an owner elsewhere, and the known owner stays.
        let instead = whole.as_ref().is_some_and(|kv| name.by_key(&kv.key).is_some());
        let owner = whole.map(|kv| self.owner_of(id.name, kv));
        if let Some(name) = self.names.get_mut(id.name) {
            name.see(self.now, others);
            if waits && !instead {
                name.owner = owner;
            }
        }
    }

    /// The owner of a name whose key etcd has shown. A key of this process that holds nothing says nothing of itself (rule P36).
    fn owner_of(&self, name: NameId, kv: Kv) -> Owner {
        let name = self.names.get(name);
        let goes = name.is_some_and(|it| it.is_going(&kv.key, kv.lease, &self.sessions));
        let unleased = kv.lease == Some(0);
        Owner {
            record: if goes { Arc::default() } else { kv.value.into() },
            unleased: unleased.then(|| String::from_utf8_lossy(&kv.key).into()),
        }
    }

    /// A key of this process is gone, or was put by another client.
    fn own_key_gone(&mut self, id: ContenderId, cause: LossCause) {
        let Some(contender) = self.names.contender(id) else { return };
        let session = contender.session;
        match &contender.state {
            State::Held(ownership) if !ownership.lost => self.lose_contender(id, cause),
            // What is left of it is in the way: out with it before the queue goes on.
            State::Waiting => self.give_up(id),
            _ => return,
        }
        // Perhaps the whole lease is gone: the sooner that is known, the sooner the others go on.
        self.sessions.wake(session).into_iter().for_each(|it| it.hurry(self.now));
    }

    /// A watch reported something.
    pub(super) fn watch_event(&mut self, watch: WatchId, event: Option<Event>) {
        let Some((id, whose)) = self.view.names.get(&watch).copied() else { return };
        match event {
            Some(event) => self.changed(id, &event),
            None => {
                self.view.close(id, |ended| ended == whose);
                let name = self.names.get(id).into_iter();
                let all = name.flat_map(|name| name.held().chain(name.in_line()));
                for number in all.map(|(number, _)| number).collect::<Vec<_>>() {
                    self.want_read(ContenderId { name: id, number }, true);
                }
            }
        }
    }

    /// A key of a name changed.
    fn changed(&mut self, id: NameId, event: &Event) {
        let (key, deleted) = match event {
            Event::Put(kv) => (&kv.key, None),
            Event::Delete { key, revision } => (key, Some(*revision)),
        };
        let watched_whole = self.view.get(id, Whose::Waits).is_some_and(Watch::is_whole);
        let Some(name) = self.names.get_mut(id) else { return };
        let own = name.by_key(key);
        // That a predecessor has gone does not admit a contender, only that all have (rule P14). A key of this process that is being
        // put may be gone before its put is answered: that is kept in mind.
        let mut affected: Vec<u64> = name.in_line().map(|(number, _)| number).chain(own).collect();
        affected.sort_unstable();
        affected.dedup();
        let mut reads = Vec::new();
        for number in affected {
            step();
            if let Some(contender) = name.get_mut(number)
                && deleted.is_some_and(|revision| contender.deleted(key, revision))
                && contender.admitted.is_none()
                && !watched_whole
            {
                reads.push(number);
            }
        }
        let lost = own.and_then(|number| Some((number, name.get(number)?.lost_by(event)?)));
        self.names.touch(id);
        reads.into_iter().for_each(|number| self.want_read(ContenderId { name: id, number }, true));
        if let Some((number, cause)) = lost {
            self.own_key_gone(ContenderId { name: id, number }, cause);
        }
    }
}

/// Records of held keys (rule P18).
impl Core {
    /// Sends the records of held keys that are to be written.
    pub(super) fn flush_descriptions(&mut self) {
        while self.may_send()
            && let Some(ids) = self.outbox.records.next(|_| Some(2))
        {
            let keys: Vec<_> = ids.iter().filter_map(|id| self.description(*id)).collect();
            match keys.is_empty() {
                true => self.outbox.records.done(ids.len(), true),
                false => {
                    let txn = transactions::describe(&keys);
                    self.send(Request::Txn(txn), Exchange::Describe(ids.len(), keys));
                }
            }
        }
    }

    /// What the key of a contender is to say of the call that has held it for a second. Its mod revision guards the write; if that is
    /// not known, it is read first.
    fn description(&mut self, id: ContenderId) -> Option<Description> {
        let contender = self.names.contender_mut(id)?;
        let ownership = contender.ownership_mut().filter(|it| !it.lost)?;
        ownership.named = ownership.first();
        let Some(modified) = contender.modified else {
            contender.ownership_mut()?.named = None;
            self.want_read(id, true);
            return None;
        };
        let contender = self.names.contender(id)?;
        let (call, record) = self.record_of(contender.held()?)?;
        let lease = self.sessions.get(contender.session)?.lease()?;
        let key = contender.key.clone()?;
        let record = self.value_of(contender, &record);
        Some(Description { contender: id, call, key, modified, lease, record })
    }

    /// Records were written, or not. Where one key has changed, the others of its transaction are written again.
    pub(super) fn described(&mut self, keys: &[Description], result: Result<TxnAnswer, Failure>) {
        // It only informs: what etcd refuses is not sent again for the same holder.
        let over = matches!(&result, Ok(answer) if answer.succeeded)
            || matches!(result, Err(Failure::Refused(..)));
        let (written, unchanged) = match result {
            Ok(answer) if answer.succeeded => (Some(answer.revision), Vec::new()),
            Ok(answer) => (None, transactions::unchanged(keys, answer)),
            Err(_) => (None, Vec::new()),
        };
        for (at, description) in keys.iter().enumerate() {
            let id = description.contender;
            let Some(contender) = self.names.contender_mut(id) else { continue };
            match written {
                Some(revision) => contender.written(revision),
                None if unchanged.get(at) == Some(&true) => {}
                None => contender.modified = None,
            }
            let ownership = contender.ownership_mut().filter(|_| !over);
            let ownership = ownership.filter(|it| it.named == Some(description.call));
            ownership.into_iter().for_each(|it| it.named = None);
            self.attend(id);
        }
    }
}
