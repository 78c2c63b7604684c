//! Answers: what etcd's responses and events mean for contenders, and what is read and watched because of them.

use super::{Core, Exchange, SLOWLY, Timer};
use crate::call::{Call, Stage};
use crate::contender::{Contender, Own, Seen, State};
use crate::ids::{
    CallId, ContenderId, Key, NameId, Revision, SessionId, WatchId, contends, lease_of, value_of,
};
use crate::loss::LossCause;
use crate::moment::Moment;
use crate::output::{Output, Owner, Refused};
use crate::ownership::{Recorded, SETTLED};
use crate::request::{Event, Failure, Kv, Refusal, Request, TxnAnswer, WatchEvent};
use crate::seat::Seat;
use crate::session::Session;
use crate::steps::step;
use crate::transactions::{self, Deletion, Description, LOCKS, Placed, Placement, READS};
use crate::view::{OFTEN, RELIES, Read, WAITER, Whose};

/// Puts and deletes.
impl Core {
    /// Sends the puts of a session that are ready.
    pub(super) fn flush_puts(&mut self, id: SessionId) {
        while self.may_send() {
            let Some(session) = self.sessions.get_mut(id).filter(|it| it.is_open()) else { return };
            let (Some(fence), Some(lease)) = (session.fence(), session.lease()) else { return };
            let again = session.puts().goes_again();
            let names = &self.names;
            // One beside another of its name goes alone (rule P5), and so does a single try.
            let pending = |lead: &ContenderId| match names.contender(*lead)? {
                it @ Contender { state: State::Pending { tries }, .. } => {
                    let beside = matches!(it.seat, Seat::Nested { .. });
                    Some((it.siblings.len().max(1), *tries || beside))
                }
                _ => None,
            };
            let Some(leads) = session.puts().next(pending) else { return };
            let first = leads.first().and_then(|id| names.contender(*id));
            let tries = first.is_some_and(|it| matches!(it.state, State::Pending { tries: true }));
            let group = |lead: &ContenderId| match names.contender(*lead) {
                Some(it) if !it.siblings.is_empty() => it.siblings.to_vec(),
                _ => vec![*lead],
            };
            let ids: Vec<ContenderId> = leads.iter().flat_map(group).collect();
            for id in &ids {
                self.names.sent(*id, lease);
            }
            let placements: Vec<Placement> =
                ids.iter().filter_map(|id| self.placement(*id)).collect();
            let deletions = match tries || again {
                true => Vec::new(),
                false => self.deletions_with_puts(placements.len()),
            };
            let before = transactions::delete(&deletions);
            let txn = transactions::put(&fence, lease, &placements, tries, before);
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
        let key = contender.key()?.clone();
        Some(Placement {
            record: value_of(
                &contender.record,
                &key,
                &self.keys_of(contender),
                &self.held_keys(&contender.lists),
            ),
            key,
            family: name.family.clone(),
            // Of the contenders of nested calls only the oldest is read, once it is that.
            all: match contender.seat {
                Seat::Nested { .. } => false,
                Seat::Exclusive => self.view.is_watched(id.name) && !name.is_crowded(),
                Seat::Shared(_) | Seat::Permit(_) => true,
            },
        })
    }

    /// The keys of a contender's group; none, if it stands alone.
    fn keys_of(&self, contender: &Contender) -> Vec<Key> {
        let siblings = contender.siblings.iter();
        siblings.filter_map(|of| self.names.contender(*of)?.key().cloned()).collect()
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
            // The session key is not as it was, or a key to be deleted is not: the puts, sent again, show which.
            Ok(answer) if !deletions.is_empty() => {
                self.put_again(session, ids, false);
                self.deleted(deletions, Ok(answer));
            }
            Ok(answer) if answer.answers.is_empty() => {
                self.put_again(session, ids, false);
                let session = self.sessions.get_mut(session);
                session.into_iter().for_each(|it| it.bar(self.now, false));
            }
            Ok(answer) => {
                self.put_again(session, ids.clone(), false);
                self.tried(&ids, answer);
            }
            // For a put or for a deletion: sent again apart, they show which (rule P9).
            Err(Failure::Refused(Refusal::PermissionDenied | Refusal::Other, _))
                if !deletions.is_empty() =>
            {
                self.put_again(session, ids, false);
                self.outbox.delete_again(deletions);
            }
            Err(failure) => {
                self.outbox.delete_again(deletions);
                self.put_failed(session, ids, failure);
            }
        }
    }

    /// The put of a contender was applied.
    fn placed(&mut self, id: ContenderId, revision: Revision, placed: Placed) {
        let now = self.now;
        let Some(name) = self.names.get_mut(id.name) else { return };
        let family = name.family.clone();
        let Some(contender) = name.get_mut(id.number) else { return };
        contender.placed(revision, placed.previous, &placed.found, &family);
        let own = contender.key().cloned();
        let is_own = |kv: &Kv| own.as_ref().is_some_and(|own| own.as_bytes() == kv.key);
        name.see(now, placed.found.iter().any(|kv| !is_own(kv) && contends(&family, &kv.key)));
        name.wait(id.number);
        if self.is_unwanted(id) {
            self.delete(id);
        }
        self.look(id);
    }

    /// A single try has met keys below its names (rule P11).
    fn tried(&mut self, ids: &[ContenderId], answer: TxnAnswer) {
        let names = ids.iter().filter_map(|id| self.names.get(id.name));
        let families: Vec<Key> = names.map(|name| name.family.clone()).collect();
        for id in ids {
            self.names.get_mut(id.name).into_iter().for_each(|name| name.heard = Some(self.now));
        }
        // No owner: the oldest key of each name lies deeper, is a key of this process that goes, or has gone; or the session key
        // changed. The core puts again, plainly.
        let Some(first) = ids.first() else { return };
        let counts = |kv: &Kv| !ids.iter().any(|id| self.is_going(id.name, &kv.key, kv.lease));
        let owner = transactions::owner(answer, families.iter(), counts);
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
        let contender = name.get(id.number).filter(|it| !it.detached)?;
        let waits = |call: &CallId| self.calls.get(*call).is_some_and(|it| it.ticket().is_some());
        match contender.bound {
            Some(call) => Some(call).filter(waits),
            None => name.serves(contender),
        }
    }

    /// Nothing of a put was applied: those of its contenders that are still wanted are put again, perhaps in `halves`.
    fn put_again(&mut self, session: SessionId, ids: Vec<ContenderId>, halves: bool) {
        let mut leads = Vec::new();
        for id in ids {
            let Some(contender) = self.names.contender_mut(id) else { continue };
            contender.state = State::Pending { tries: false };
            let leads_group = contender.siblings.first().is_none_or(|first| *first == id);
            self.names.touch(id.name);
            match self.is_unwanted(id) {
                true => self.remove(id),
                false if leads_group => leads.push(id),
                false => {}
            }
        }
        if let Some(session) = self.sessions.get_mut(session) {
            session.puts().again(leads, halves);
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
                    self.names
                        .contender_mut(id)
                        .into_iter()
                        .for_each(|it| it.state = State::Unsettled);
                }
            }
            Failure::Unavailable(_) => self.put_again(session, ids, false),
            Failure::Refused(Refusal::LeaseNotFound, _) => {
                self.put_again(session, ids, false);
                self.lose_session(session, LossCause::Gone);
            }
            Failure::Refused(kind, _) => {
                // Nothing comes later, but the keys may be there (rule P34).
                let applied = kind == Refusal::NoSpace;
                let alone = ids.first().and_then(|id| self.names.contender(*id));
                let alone = alone.is_none_or(|it| it.siblings.len().max(1) == ids.len());
                if !alone && !applied {
                    // One bad name fails all: the halves go their own ways, but no group is torn (rules P9, P13).
                    return self.put_again(session, ids, true);
                }
                let why = Refused::by(failure);
                let mut served: Vec<_> = ids.iter().filter_map(|id| self.served_by(*id)).collect();
                served.dedup();
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
                self.outbox.delete_again(deletions);
                self.are_gone(gone);
            }
            Err(Failure::Unavailable(_) | Failure::Unknown(_)) => {
                self.outbox.delete_again(deletions)
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
                    let pause = self.pause(SLOWLY);
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
    /// Sends the reads that are wanted.
    pub(super) fn flush_reads(&mut self) {
        while self.may_send()
            && let Some(reads) = self.view.next_reads(|id| {
                let name = self.names.get(id.name)?;
                Read::of(id, name.get(id.number)?, &name.family)
            })
        {
            let ops = reads.iter().flat_map(Read::ops).collect();
            let txn = transactions::reads(ops);
            self.send(Request::Txn(txn), Exchange::Read(reads));
        }
    }

    /// Has a contender read as soon as may be; of a name with very many keys below it, at most once a second.
    pub(super) fn want_read(&mut self, id: ContenderId, urgent: bool) {
        match self.names.get(id.name).and_then(|name| name.rests_until(self.now)) {
            Some(at) => self.read_at(id, at),
            None => self.view.read(id, urgent),
        }
    }

    /// A read has to show what is ahead of a contender, or whether another process waits behind one that readers hold.
    pub(super) fn ask(&mut self, id: ContenderId) {
        let Some(contender) = self.names.contender_mut(id) else { return };
        let asks = match contender.ownership_mut() {
            Some(ownership) => ownership.ask(self.now),
            None => {
                self.read_at(id, self.now + RELIES);
                true
            }
        };
        if asks {
            self.want_read(id, true);
        }
    }

    /// Reads what is ahead of a contender, or watches what excludes it; watches one that has been held for a second.
    pub(super) fn look(&mut self, id: ContenderId) {
        let Some(contender) = self.names.contender(id) else { return };
        let siblings = contender.siblings.clone();
        let observed = self.names.get(id.name).is_some_and(|name| name.is_observed(id.number));
        match &contender.state {
            State::Waiting if !observed => {
                self.names.contender_mut(id).into_iter().for_each(|it| it.read_at = None);
            }
            State::Waiting if !contender.is_read() => self.want_read(id, true),
            // One of a group that is admitted waits for its siblings.
            State::Waiting if contender.must_wait() || !siblings.is_empty() => {
                self.watch(id);
                self.read_later(id);
            }
            State::Held(ownership) if !ownership.lost => {
                let settled = ownership.since + SETTLED;
                let guarded = self.view.is_guarded(id.name, contender.session);
                if ownership.record_due().is_some_and(|due| due <= self.now) {
                    self.outbox.describe(id);
                }
                if settled <= self.now {
                    self.watch(id);
                } else if !guarded {
                    let at = contender.read_at.map_or(settled, |at| at.min(settled));
                    self.read_at(id, at);
                }
                let due = self.names.contender(id).and_then(Contender::due);
                if let Some(due) = due.filter(|due| *due > self.now) {
                    self.timers.set_by(Timer::Contender(id), due);
                }
            }
            _ => {}
        }
        self.names.touch(id.name);
        siblings.iter().for_each(|of| self.names.touch(of.name));
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
        let owned = self.names.get(id.name).is_some_and(|name| name.owner.is_some());
        // One of a group that is admitted waits for its siblings.
        let admitted = self.names.contender(id).is_some_and(|it| it.admitted().is_some());
        let after = match self.view.early(self.now, id.name) {
            Some(early) => early,
            None if owned || admitted => self.jittered(WAITER),
            None => {
                let until = self.wait_ends(id);
                until.map_or(RELIES, |until| ((until - self.now) / 2).clamp(OFTEN, RELIES))
            }
        };
        self.read_at(id, self.now + after);
    }

    /// Watches what matters of a contender's name, unless that is watched. Closes the watches of the name that no contender needs
    /// any more.
    fn watch(&mut self, id: ContenderId) {
        let Some(name) = self.names.get(id.name) else { return };
        // A watch on all keys of a crowded name would bring an event for each key below it.
        let near = if name.is_crowded() { 0 } else { self.settings.near };
        let Some(contender) = name.get(id.number) else { return };
        let Some((prefix, from)) = contender.watched(&name.family, near) else { return };
        let whose = match contender.state {
            State::Held(_) => Whose::Holds(contender.session),
            _ => Whose::Waits,
        };
        let closed = self.view.close(id.name, |whose| match whose {
            Whose::Waits => name.in_line().next().is_none(),
            Whose::Holds(session) => !name.held().any(|(_, it)| it.session == session),
        });
        self.outputs.extend(closed);
        let opened = self.view.open(self.now, id.name, whose, prefix, from);
        self.outputs.extend(opened);
        if let Some(contender) = self.names.contender_mut(id).filter(|it| it.ownership().is_some())
        {
            contender.read_at = None;
        }
    }

    /// A contender is to be looked at: reads one that waits; watches one that is held, and writes its record.
    pub(super) fn contender_due(&mut self, id: ContenderId) {
        let now = self.now;
        let Some(contender) = self.names.contender(id) else { return };
        if let Some(ownership) = contender.ownership() {
            let asked = ownership.is_asked();
            let guarded = self.view.is_guarded(id.name, contender.session);
            if contender.read_at.is_some_and(|at| at <= now) {
                self.names.contender_mut(id).into_iter().for_each(|it| it.read_at = None);
                match asked || guarded {
                    true => self.want_read(id, asked),
                    false => self.watch(id),
                }
            }
            self.look(id);
        } else if matches!(contender.state, State::Waiting) {
            match self.names.get(id.name).is_some_and(|name| name.is_observed(id.number)) {
                true => self.want_read(id, true),
                false => self.look(id),
            }
        }
    }

    /// Reads have no response, or a stale one: they are sent again.
    pub(super) fn read_again(&mut self, reads: &[Read], stale: bool, failures: u32) {
        self.view.read_done(reads.len());
        if stale {
            self.suspect_history(reads);
        }
        for read in reads {
            let pause = self.pause(failures);
            self.read_at(read.contender, self.now + pause);
        }
    }

    /// Reads came from a member that lags, or from an etcd that has lost its history (rules P20, P35): a write finds out which.
    fn suspect_history(&mut self, reads: &[Read]) {
        let contenders = reads.iter().filter_map(|read| self.names.contender(read.contender));
        let mut sessions = contenders.map(|it| (it.session, it.wish.ttl_secs));
        let writes = |id: &SessionId| self.sessions.get(*id).is_some_and(Session::is_alive);
        let first = sessions.clone().next();
        let session = match (sessions.find(|(id, _)| writes(id)), first) {
            (Some((id, _)), _) => id,
            // One that is lost writes nothing.
            (None, Some((_, ttl_secs))) if !self.shutdown.has_begun() => {
                self.sessions.choose(self.now, ttl_secs)
            }
            (None, _) => return,
        };
        let session = self.sessions.wake(session);
        session.into_iter().for_each(|it| it.bar(self.now, true));
    }

    /// Reads were answered.
    pub(super) fn read(&mut self, reads: Vec<Read>, answer: TxnAnswer) {
        self.view.read_done(reads.len());
        let mut answers = answer.answers.into_iter();
        for read in reads {
            let seen = read.seen(&mut answers);
            self.saw(&read, seen, answer.revision);
            self.look(read.contender);
        }
    }

    /// Takes in what a read shows of a contender.
    fn saw(&mut self, read: &Read, seen: Seen, revision: Revision) {
        let id = read.contender;
        let Some(name) = self.names.get_mut(id.name) else { return };
        let family = name.family.clone();
        if name.note_below(self.now, &seen.keys)
            && !std::mem::replace(&mut self.has_met_crowd, true)
        {
            self.outputs.push_back(Output::Crowded(name.text.clone()));
        }
        let Some(contender) = name.get_mut(id.number) else { return };
        let waits = matches!(contender.state, State::Waiting);
        if !waits && contender.ownership().is_none() {
            return;
        }
        let Some(lease) = self.sessions.get(contender.session).and_then(Session::lease) else {
            return;
        };
        match contender.compare(lease, revision, &seen) {
            Own::Intact => {}
            Own::Unknown => return self.want_read(id, true),
            Own::Lost(cause) => return self.own_key_gone(id, cause),
        }
        // The contender was granted after the read was sent, so the rest of the read is about another state.
        if waits != read.up_to.is_some() {
            return;
        }
        let others = match waits {
            true => {
                contender.read(revision, &seen.keys, &family);
                contender.admitted().is_none()
            }
            false => {
                let is_ours = |key: &[u8]| lease_of(key).is_some_and(|it| self.sessions.have(it));
                contender.is_contended(&seen.keys, &family, is_ours)
            }
        };
        if let Some(ownership) = contender.ownership_mut() {
            ownership.read(self.now, revision, others);
        }
        let whole = seen.whole.filter(|_| waits && others);
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
    fn owner_of(&self, name: NameId, mut kv: Kv) -> Owner {
        if self.is_going(name, &kv.key, kv.lease) {
            kv.value.clear();
        }
        Owner::of(kv)
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
        self.renew(session);
    }

    /// A watch reported something.
    pub(super) fn watch_event(&mut self, watch: WatchId, event: WatchEvent) {
        let Some((id, whose)) = self.view.name_of(watch) else { return };
        match event {
            WatchEvent::Changed(event) => self.changed(id, &event),
            WatchEvent::Compacted => {
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
                && contender.admitted().is_none()
                && !self.view.is_watched_whole(id)
            {
                reads.push(number);
            }
        }
        let lost = own.and_then(|number| {
            let contender = name.get(number)?;
            let lease = self.sessions.get(contender.session)?.lease()?;
            Some((number, contender.lost_by(event, lease)?))
        });
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
        let mut keys = Vec::new();
        while self.may_send()
            && keys.len() < READS
            && let Some(id) = self.outbox.next_described()
        {
            keys.extend(self.description(id));
        }
        if !keys.is_empty() {
            self.outbox.describing = true;
            let txn = transactions::describe(&keys);
            self.send(Request::Txn(txn), Exchange::Describe(keys));
        }
    }

    /// What the key of a contender is to say of the call that has held it for a second. Its mod revision guards the write; if that is
    /// not known, it is read first.
    fn description(&mut self, id: ContenderId) -> Option<Description> {
        let contender = self.names.contender(id)?;
        let ownership = contender.held()?;
        ownership.record_due().filter(|due| *due <= self.now)?;
        let Some(modified) = contender.modified() else {
            self.want_read(id, true);
            return None;
        };
        let (call, record) = self.record_of(ownership)?;
        let lease = self.sessions.get(contender.session)?.lease()?;
        let key = contender.key()?.clone();
        let record = value_of(&record, &key, &self.keys_of(contender), &[]);
        let ownership = self.names.contender_mut(id)?.ownership_mut()?;
        ownership.recorded = Recorded::Writing;
        Some(Description { contender: id, call, key, modified, lease, record })
    }

    /// Records were written, or not. Where one key has changed, the others of its transaction are written again.
    pub(super) fn described(&mut self, keys: &[Description], result: Result<TxnAnswer, Failure>) {
        self.outbox.describing = false;
        let refused = matches!(result, Err(Failure::Refused(..)));
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
                None => contender.forget_modified(),
            }
            if let Some(ownership) = contender.ownership_mut() {
                // It only informs: what etcd refuses is not sent again for the same holder.
                ownership.recorded = match written.is_some() || refused {
                    true => Recorded::Names(description.call),
                    false => Recorded::Nothing,
                };
            }
            self.look(id);
        }
    }
}
