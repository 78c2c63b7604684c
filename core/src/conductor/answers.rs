//! Answers: the effects of etcd's responses and events on contenders, and the reads and watches that follow.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::replace;

use super::{Core, Exchange, Timer};
use crate::call::{Call, Stage};
use crate::contender::{Contender, Need, State};
use crate::ids::{CallId, ContenderId, NameId, Revision, SessionId, Unit, WatchId, contends};
use crate::loss::LossCause;
use crate::moment::Moment;
use crate::name::Names;
use crate::output::{Output, Owner, Refused};
use crate::request::{Answer, Event, Failure, Kv, Refusal, Request, Txn};
use crate::seat::Seat;
use crate::steps::step;
use crate::timers::LONGEST_PAUSE;
use crate::transactions::{self, Deletion, Description, LOCKS, Placement};
use crate::view::{FIRST_READ, READ_AGAIN, Read, SHORTEST_PAUSE, Watch, Whose};

/// Puts and deletes.
impl Core {
    /// Sends the puts that are ready. If a session is not open, its puts wait there until it is.
    pub(super) fn flush_puts(&mut self) {
        while !self.waits_for_more(self.outbox.puts.is_ready()) {
            let narrow = self.outbox.puts.is_narrow();
            let (names, sessions) = (&self.names, &mut self.sessions);
            let room = |unit: &Unit| {
                let first = unit.first()?;
                let session = sessions.all.get_mut(&names.contender(*first)?.session)?;
                if !session.is_open() {
                    session.units.insert(*first, unit.clone());
                    return None;
                }
                unit.iter().map(|id| names.contender(*id)?.room(LOCKS)).sum()
            };
            let Some(units) = self.outbox.puts.next(room) else { return };
            let ids = units.concat();
            let (mut fences, mut tries) = (BTreeMap::new(), false);
            for id in &ids {
                let Some(contender) = self.names.contender_mut(*id) else { continue };
                let Some(session) = self.sessions.all.get(&contender.session) else { continue };
                fences.entry(contender.session).or_insert_with(|| session.fence());
                contender.sent(session.lease().unwrap_or_default());
                tries |= contender.tries;
            }
            let placements = ids.iter().filter_map(|id| self.placement(*id)).collect::<Vec<_>>();
            let room = if tries || narrow { 0 } else { LOCKS.saturating_sub(placements.len()) };
            let deletions = self.deletions_with_puts(room);
            let before = transactions::delete(&deletions);
            let fences = fences.into_values().flatten().collect();
            let txn = transactions::put(fences, &placements, tries, before);
            self.send(Request::Txn(txn), Exchange::Put(units, deletions));
        }
    }

    /// Takes up to `room` deletions that go with puts (rule P7), up to the first that may fail and so void the puts.
    fn deletions_with_puts(&mut self, room: usize) -> Vec<Deletion> {
        let alive = |id| self.sessions.all.get(&id).is_some_and(|it| !it.is_lost());
        let likely = |it: &&Deletion| it.created.is_some() && alive(it.session);
        let line = &mut self.outbox.deletions;
        let most = if line.is_narrow() { 0 } else { room };
        let likely = line.pending.iter().take(most).take_while(likely).count();
        line.pending.drain(..likely).collect()
    }

    /// Returns what to put for a contender.
    fn placement(&self, id: ContenderId) -> Option<Placement> {
        let name = self.names.get(id.name)?;
        let contender = name.contenders.get(&id.number)?;
        Some(Placement {
            key: contender.key.clone()?,
            lease: contender.lease()?,
            record: self.value_of(contender, &contender.record),
            family: name.family.clone(),
            // A nested contender is read separately, once it is the oldest.
            all: match contender.seat {
                Seat::Nested { .. } => false,
                Seat::Exclusive => self.view.is_watched(id.name) && name.rests_until.is_none(),
                Seat::Shared(_) | Seat::Permit(_) => true,
            },
        })
    }

    /// Takes in the result of a transaction of puts, with or without deletions (rules P8 to P11).
    pub(super) fn put(&mut self, units: Vec<Unit>, deletions: Vec<Deletion>, result: Answer) {
        self.outbox.puts.done(units.len(), result.is_ok());
        let ids = units.concat();
        let session = |id: &ContenderId| self.names.contender(*id).map(|it| it.session);
        let sessions: BTreeSet<SessionId> = ids.iter().filter_map(session).collect();
        match result {
            Ok(answer) if answer.succeeded => {
                let revision = answer.revision;
                let placed = transactions::placed(answer, ids.len());
                for (id, found) in ids.into_iter().zip(placed) {
                    let Some(name) = self.names.get_mut(id.name) else { continue };
                    let place = |it: &mut Contender| it.placed(revision, &found);
                    let foreign = name.change(id.number, place);
                    foreign.into_iter().for_each(|foreign| name.see(self.now, foreign));
                    if self.is_unwanted(id) {
                        self.delete(id);
                    }
                    self.attend(id);
                }
                return self.are_gone(deletions);
            }
            // A put or a deletion is the reason. Sent again separately, they show which (rule P9).
            Ok(_) | Err(Failure::Refused(Refusal::PermissionDenied | Refusal::Other, _))
                if !deletions.is_empty() =>
            {
                let (puts, deletes) = (units.len(), deletions.len());
                self.put_again(units, Some(puts));
                return self.outbox.deletions.again(deletions, Some(deletes));
            }
            Ok(answer) => {
                self.put_again(units, None);
                let mut found = answer.firsts();
                for (id, shown) in sessions.into_iter().zip(&mut found) {
                    let modified = shown.map(|kv| kv.mod_revision);
                    let session = self.sessions.wake(id);
                    session.into_iter().for_each(|it| it.compare(self.now, modified));
                }
                self.tried(&ids, found);
            }
            Err(Failure::Unavailable(_)) => self.put_again(units, None),
            Err(Failure::Unknown(_)) => {
                for id in ids {
                    let Some(contender) = self.names.contender_mut(id) else { continue };
                    contender.state = State::Unsettled;
                    match self.sessions.wake(contender.session) {
                        Some(session) => {
                            session.ambiguous.insert(id);
                            session.bar(self.now, false);
                        }
                        None => self.remove(id), // its key is deleted with its lease
                    }
                }
            }
            Err(Failure::Refused(Refusal::LeaseNotFound, _)) if sessions.len() == 1 => {
                self.put_again(units, None);
                sessions.into_iter().for_each(|id| self.leave_session(id, Some(LossCause::Gone)));
            }
            // One bad name fails all. They are sent in smaller transactions, without splitting groups (rules P9, P13).
            Err(Failure::Refused(kind, _)) if units.len() > 1 && kind != Refusal::NoSpace => {
                if kind == Refusal::LeaseNotFound {
                    let hurry = |id| self.sessions.wake(id).map_or((), |it| it.hurry(self.now));
                    sessions.into_iter().for_each(hurry); // a renewal shows which lease
                }
                let half = units.len() / 2;
                self.put_again(units, Some(half));
            }
            Err(failure @ Failure::Refused(kind, _)) => {
                let calls: Vec<_> = ids.iter().filter_map(|id| self.served_by(*id)).collect();
                for id in ids {
                    // Nothing will be applied later, but the keys may exist (rule P34).
                    match self.names.contender_mut(id).filter(|_| kind == Refusal::NoSpace) {
                        Some(contender) => {
                            contender.state = State::Unsettled;
                            self.delete(id);
                        }
                        None => self.remove(id),
                    }
                }
                let why = Refused::by(failure);
                calls.into_iter().for_each(|call| self.refuse(call, why.clone()));
            }
        }
        self.outbox.deletions.again(deletions, None);
    }

    /// Takes in the keys that a single try found below its names (rule P11). It is refused if one of them owns a name: neither a
    /// deeper key, nor one of this process that is about to go.
    fn tried(&mut self, ids: &[ContenderId], found: impl Iterator<Item = Option<Kv>>) {
        let mut owner = None;
        for (at, (id, found)) in ids.iter().zip(found).enumerate() {
            let Some(name) = self.names.get_mut(id.name) else { continue };
            name.answered = Some(self.now);
            let owns = |kv: &Kv| {
                contends(&name.family, &kv.key) && !name.is_going(&kv.key, kv.lease, &self.sessions)
            };
            owner = owner.or(found.filter(owns).map(|kv| (at, Owner::of(kv))));
        }
        let call = ids.first().and_then(|id| self.served_by(*id));
        let call = call.filter(|call| self.calls.get(*call).is_some_and(Call::is_try));
        if let (Some(call), Some((name, owner))) = (call, owner) {
            self.refuse(call, Refused::Held { name, owner: Some(owner) });
        }
    }

    /// Returns the call that a contender in line would serve.
    fn served_by(&self, id: ContenderId) -> Option<CallId> {
        let name = self.names.get(id.name)?;
        name.serves(name.contenders.get(&id.number).filter(|it| !it.detached)?, &self.calls)
    }

    /// Puts these keys again if they are still wanted. Only for puts of which nothing was applied (rule P8). `room`: the most keys of
    /// the next transaction.
    fn put_again(&mut self, units: Vec<Unit>, room: Option<usize>) {
        let mut wanted = Vec::new();
        for unit in units {
            for id in &*unit {
                if let Some(contender) = self.names.contender_mut(*id) {
                    (contender.state, contender.tries) = (State::Pending, false);
                }
                self.names.touch(id.name);
            }
            match unit.iter().any(|id| self.is_unwanted(*id)) {
                true => unit.iter().for_each(|id| self.remove(*id)),
                false => wanted.push(unit),
            }
        }
        self.outbox.puts.again(wanted, room);
    }

    /// Takes in the result of deletions (rules P24, P34).
    pub(super) fn deleted(&mut self, mut deletions: Vec<Deletion>, result: Answer) {
        self.outbox.deletions.done(deletions.len(), result.is_ok());
        let failure = match result {
            Ok(answer) => {
                let gone = transactions::deleted(&mut deletions, answer);
                self.outbox.deletions.again(deletions, None);
                return self.are_gone(gone);
            }
            Err(failure @ Failure::Refused(..)) => failure,
            Err(_) => return self.outbox.deletions.again(deletions, None),
        };
        // The keys of an ended session are deleted with its lease.
        let is_over = |it: &mut Deletion| !self.sessions.all.contains_key(&it.session);
        let gone = deletions.extract_if(.., is_over).collect();
        self.are_gone(gone);
        if deletions.len() > 1 {
            let half = deletions.len() / 2;
            return self.outbox.deletions.again(deletions, Some(half));
        }
        let Some(deletion) = deletions.pop() else { return };
        let is_denied = matches!(failure, Failure::Refused(Refusal::PermissionDenied, _));
        let call = self.names.contender(deletion.contender).and_then(|it| it.confirms);
        let stage = call.and_then(|call| self.calls.get_mut(call)).map(|it| &mut it.stage);
        if let Some(Stage::Releasing { refused, .. }) = stage {
            *refused = Some(Box::new(Refused::by(failure)));
        }
        if is_denied && deletion.created.is_none() {
            // Probably the put was denied too. If it was applied, the key is deleted with its lease.
            self.leave_session(deletion.session, None);
            return self.are_gone(vec![deletion]);
        }
        self.outbox.refused.push_back(deletion);
        let pause = self.jitter.pause(LONGEST_PAUSE);
        self.outbox.retry_at.get_or_insert(self.now + pause);
    }

    /// Removes the contenders of these deletions, because their keys are gone.
    fn are_gone(&mut self, deletions: Vec<Deletion>) {
        for Deletion { contender: id, .. } in deletions {
            self.names.get_mut(id.name).into_iter().for_each(|name| name.answered = Some(self.now));
            self.remove(id);
            self.outbox.deleted(id);
        }
    }
}

/// Reads and watches.
impl Core {
    pub(super) fn flush_reads(&mut self) {
        // Counted as two keys, because each read has two operations.
        let keys = |names: &Names, id| names.contender(id)?.to_read.then_some(2);
        while let Some(ids) = self.view.reads.next(|id| keys(&self.names, *id)) {
            let read = |id: ContenderId| {
                let contender = self.names.contender_mut(id)?;
                contender.to_read = false;
                contender.read_at.get_or_insert(self.now + FIRST_READ); // it is being read
                Read::of(id, contender)
            };
            let reads: Vec<Read> = ids.into_iter().filter_map(read).collect();
            let then = reads.iter().flat_map(Read::ops).collect();
            let txn = Txn { then, ..Txn::default() };
            self.send(Request::Txn(txn), Exchange::Read(reads));
        }
    }

    /// Has a contender read as soon as possible, but the contenders of a crowded name at most once a second.
    pub(super) fn want_read(&mut self, id: ContenderId) {
        let Some(name) = self.names.get_mut(id.name) else { return };
        if let Some(at) = name.rests_until.filter(|at| *at > self.now) {
            return self.read_at(id, at);
        }
        let Some(contender) = name.contenders.get_mut(&id.number) else { return };
        let waits = match &contender.state {
            State::Waiting => true,
            State::Held(it) => it.asked.is_some(), // the next call of this process waits for that read
            _ => return,
        };
        if !replace(&mut contender.to_read, true) {
            let line = &mut self.view.reads.pending;
            if waits { line.push_front(id) } else { line.push_back(id) }
        }
    }

    /// Gets what a contender needs to know about its name, and writes its record if that is due.
    pub(super) fn attend(&mut self, id: ContenderId) {
        let Some(name) = self.names.get_mut(id.name) else { return };
        // No older contender of this process is ahead of it, or single tries need to know the owner of the name.
        let observed = !name.tries.is_empty() || name.fronts().any(|(of, _)| of == id.number);
        let Some(contender) = name.contenders.get_mut(&id.number) else { return };
        let guarded = self.view.get(id.name, Whose::Holds(contender.session)).is_some();
        if contender.record_due().is_some_and(|due| due <= self.now) {
            contender.ownership_mut().into_iter().for_each(|it| it.named = it.first());
            self.outbox.records.pending.push_back(id);
        }
        match contender.need(self.now, observed, guarded) {
            Need::Read => self.want_read(id),
            Need::Watch => self.watch(id),
            Need::Nothing => {}
        }
        let due = self.names.contender(id).and_then(Contender::due).filter(|due| *due > self.now);
        self.timers.set(Timer::Contender(id), due);
        self.touch(id);
    }

    /// Schedules when a contender is read, or starts to be watched.
    pub(super) fn read_at(&mut self, id: ContenderId, at: Moment) {
        if let Some(contender) = self.names.contender_mut(id) {
            contender.read_at = Some(at);
            self.timers.set(Timer::Contender(id), contender.due());
        }
    }

    /// Opens the watch that a contender needs, and closes watches of the name that no contender needs. A waiter is also read:
    /// early if its watch is fresh, and in time for its call to report the owner of the name.
    fn watch(&mut self, id: ContenderId) {
        let Some(name) = self.names.get(id.name) else { return };
        // A watch of a whole crowded name would bring an event for each key below it.
        let near = if name.rests_until.is_some() { 0 } else { self.settings.near };
        let Some(contender) = name.contenders.get(&id.number) else { return };
        let Some(watched) = contender.watched(near) else { return };
        let is_held = contender.ownership().is_some();
        let whose = if is_held { Whose::Holds(contender.session) } else { Whose::Waits };
        let holding = name.held().inspect(|_| step()).map(|(_, it)| it.session);
        let holding: BTreeSet<SessionId> = holding.collect();
        let closed = self.view.close(id.name, |whose| match whose {
            Whose::Waits => name.in_line().next().is_none(),
            Whose::Holds(session) => !holding.contains(&session),
        });
        self.outputs.extend(closed);
        self.outputs.extend(self.view.open(self.now, (id.name, whose), watched));
        if is_held {
            return;
        }
        let early = self.view.get(id.name, whose).and_then(|watch| watch.early(self.now));
        let head = name.head(&self.calls).map(|(_, head)| head);
        let until = head.and_then(|head| head.until);
        // A single try is refused if nothing was read within the connect time-out, which may be shorter than the usual pause.
        let owned = name.owner.is_some() && !head.is_some_and(Call::is_try);
        let known = owned || contender.admitted.is_some();
        let half = until
            .map_or(FIRST_READ, |until| ((until - self.now) / 2).clamp(SHORTEST_PAUSE, FIRST_READ));
        let after = early.unwrap_or_else(|| if known { self.jitter.of(READ_AGAIN) } else { half });
        if let Some(contender) = self.names.contender_mut(id) {
            contender.read_at = Some(self.now + after);
        }
    }

    pub(super) fn read(&mut self, reads: Vec<Read>, result: Answer) {
        self.view.reads.done(reads.len(), result.is_ok());
        let (stale, failures) = match result {
            Ok(answer) if !answer.stale => {
                let mut answers = answer.answers.into_iter();
                for read in reads {
                    let seen = read.seen(&mut answers);
                    self.saw(&read, seen, answer.revision);
                    self.attend(read.contender);
                }
                return;
            }
            Ok(_) => (true, 0),
            Err(Failure::Refused(..)) => (false, LONGEST_PAUSE),
            Err(_) => (false, 0),
        };
        for read in reads {
            let session = self.names.contender(read.contender).map(|it| it.session);
            let session = session.filter(|_| stale).and_then(|id| self.sessions.wake(id));
            if let Some(session) = session.filter(|it| !it.is_lost()) {
                // The member lags, or etcd has lost its history. A write finds out which (rules P20, P35).
                session.bar(self.now, true);
            }
            let pause = self.jitter.pause(failures);
            self.read_at(read.contender, self.now + pause);
        }
    }

    /// Takes in what a read returned for a contender.
    fn saw(&mut self, read: &Read, seen: Vec<Kv>, revision: Revision) {
        let id = read.contender;
        let Some(name) = self.names.get_mut(id.name) else { return };
        name.note_below(self.now, &seen);
        if name.rests_until.is_some() && !replace(&mut self.has_met_crowd, true) {
            self.outputs.push_back(Output::Crowded(name.text.clone()));
        }
        let Some(contender) = name.contenders.get_mut(&id.number) else { return };
        let waits = matches!(contender.state, State::Waiting);
        // If it is held without a watch, `read_at` is the time at which its watch opens.
        if waits || self.view.get(id.name, Whose::Holds(contender.session)).is_some() {
            contender.read_at = None;
        }
        if !waits && contender.ownership().is_none() {
            return;
        }
        if let Some(cause) = contender.compare(revision, &seen) {
            return self.own_key_gone(id, cause);
        }
        if contender.modified.is_none() {
            return self.want_read(id);
        }
        // If it was granted after the read was sent, the rest of the read does not apply to its new state.
        if waits == read.up_to.is_some() {
            name.read(self.now, id.number, revision, seen, &self.sessions);
        }
    }

    /// Takes in that a key of this process is gone, or was put by another client.
    fn own_key_gone(&mut self, id: ContenderId, cause: LossCause) {
        let Some(contender) = self.names.contender(id) else { return };
        let session = contender.session;
        match &contender.state {
            State::Held(ownership) if !ownership.lost => self.lose_contender(id, cause),
            // The rest of its group, or the other client's key, must go before the queue moves on.
            State::Waiting => self.give_up(id),
            _ => return,
        }
        // The whole lease may be gone. The sooner that is known, the sooner the other calls continue.
        self.sessions.wake(session).into_iter().for_each(|it| it.hurry(self.now));
    }

    pub(super) fn watch_event(&mut self, watch: WatchId, event: Option<Event>) {
        let Some((id, whose)) = self.view.names.get(&watch).copied() else { return };
        match event {
            Some(event) => self.changed(id, &event),
            None => {
                self.view.close(id, |ended| ended == whose);
                let name = self.names.get(id).into_iter();
                let all = name.flat_map(|name| name.held().chain(name.in_line()));
                for number in all.map(|(number, _)| number).collect::<Vec<_>>() {
                    self.want_read(ContenderId { name: id, number });
                }
            }
        }
    }

    /// Takes in a change of a key below a name.
    fn changed(&mut self, id: NameId, event: &Event) {
        let Some(name) = self.names.get(id) else { return };
        let (Event::Put(Kv { key, .. }) | Event::Delete { key, .. }) = event;
        let at = |number| ContenderId { name: id, number };
        let own = name.by_key(key).map(at);
        // A key of this process may be deleted before the response to its put. Its contender must remember that.
        let in_line = name.in_line().map(|(number, _)| at(number)).chain(own);
        let in_line: Vec<ContenderId> = in_line.collect();
        self.names.touch(id);
        if let Event::Delete { revision, .. } = event {
            let watched_whole = self.view.get(id, Whose::Waits).is_some_and(Watch::is_whole);
            for id in in_line {
                step();
                // The deletion of one predecessor does not admit a contender, only the deletion of all does (rule P14).
                let contender = self.names.contender_mut(id);
                let waits =
                    |it: &mut Contender| it.deleted(key, *revision) && it.admitted.is_none();
                if contender.is_some_and(waits) && !watched_whole {
                    self.want_read(id);
                }
            }
        }
        let contender = own.and_then(|id| self.names.contender(id));
        if let (Some(id), Some(cause)) = (own, contender.and_then(|it| it.lost_by(event))) {
            self.own_key_gone(id, cause);
        }
    }
}

/// Records of held keys (rule P18).
impl Core {
    /// Sends the records of held keys that must be written.
    pub(super) fn flush_descriptions(&mut self) {
        while let Some(ids) = self.outbox.records.next(|_| Some(2)) {
            // A contender that was read meanwhile may be in the line twice.
            let contenders: BTreeSet<&ContenderId> = ids.iter().collect();
            let mut keys: Vec<Description> = Vec::new();
            for id in contenders {
                let key = self.description(*id);
                if key.is_none() {
                    let ownership =
                        self.names.contender_mut(*id).and_then(Contender::ownership_mut);
                    ownership.into_iter().for_each(|it| it.named = None);
                }
                keys.extend(key);
            }
            match keys.is_empty() {
                true => self.outbox.records.done(ids.len(), true),
                false => {
                    let txn = transactions::describe(&keys);
                    self.send(Request::Txn(txn), Exchange::Describe(ids.len(), keys));
                }
            }
        }
    }

    /// Returns the record to write for the first holder; `None`: the key was handed over, or its mod revision is unknown.
    fn description(&self, id: ContenderId) -> Option<Description> {
        let contender = self.names.contender(id)?;
        let ownership = contender.held().filter(|it| it.named == it.first())?;
        let key = contender.key.clone()?;
        let record = self.value_of(contender, &self.record_of(ownership)?);
        let (lease, modified) = (contender.lease()?, contender.modified?);
        Some(Description { contender: id, key, modified, lease, record })
    }

    /// Takes in the result of writing records. If one key has changed, the other records of the transaction are written again.
    pub(super) fn described(&mut self, count: usize, keys: &[Description], result: Answer) {
        self.outbox.records.done(count, result.is_ok());
        // A refused record is not written again for this holder: it only informs. At its quota etcd may have written it (P34).
        let over = match &result {
            Ok(answer) => answer.succeeded,
            Err(Failure::Refused(Refusal::NoSpace, _)) => true,
            Err(Failure::Refused(..)) => return,
            Err(_) => false,
        };
        for (it, modified) in keys.iter().zip(transactions::described(keys, result.ok())) {
            let Some(contender) = self.names.contender_mut(it.contender) else { continue };
            match modified {
                Some(modified) => contender.written(modified),
                None => contender.modified = None,
            }
            let ownership = contender.ownership_mut().filter(|_| !over);
            ownership.into_iter().for_each(|it| it.named = None);
            self.attend(it.contender);
        }
    }
}
