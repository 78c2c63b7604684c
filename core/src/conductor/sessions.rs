//! Sessions: sends their requests, and carries out what follows from responses.

use std::collections::BTreeSet;
use std::mem::take;

use super::{Core, Exchange, Timer};
use crate::contender::{Contender, State};
use crate::ids::{CallId, ContenderId, SessionId};
use crate::loss::LossCause;
use crate::output::{Output, Refused};
use crate::session::{Asked, LIST, Need};
use crate::steps::step;
use crate::transactions::READS;
use crate::view::Whose;

impl Core {
    /// Sends the requests of sessions. While etcd is lost, these are only renewals.
    pub(super) fn flush_sessions(&mut self) {
        for call in self.sessions.warmed(self.now, |call| self.calls.waiting(call).is_some()) {
            self.calls.go_on(call, None, None);
            self.outputs.push_back(Output::Ready(call));
        }
        while !self.waits_for_more(self.lost.is_none() && !self.sessions.awake.is_empty()) {
            self.settle();
            let Some(id) = self.sessions.awake.first().copied() else { return };
            step();
            match self.need_of(id) {
                // The loss of a session affects many calls, so it is left to the session's timer. Hand-overs check the stop time.
                Some(Need::Leave(Some(_))) if self.is_command => {
                    self.sessions.awake.remove(&id);
                }
                Some(need) => self.meet(id, need),
                None => {
                    self.sessions.awake.remove(&id);
                    let sends = self.lost.is_none();
                    let session = self.sessions.all.get_mut(&id);
                    let due = session.as_ref().and_then(|session| session.due(self.now));
                    self.timers.set(Timer::Session(id), due);
                    if let Some(open) = session.filter(|it| sends && it.is_open()) {
                        self.outbox.puts.pending.extend(take(&mut open.units).into_values());
                    }
                }
            }
        }
    }

    fn need_of(&mut self, id: SessionId) -> Option<Need> {
        let (sends, names) = (self.lost.is_none(), &self.names);
        let held = |id: &ContenderId| {
            names.contender(*id).filter(|it| it.ownership().is_some())?.incarnation()
        };
        let ttl_secs = self.sessions.all.get(&id)?.ttl_secs;
        let spare = self.sessions.with_room(ttl_secs).nth(1).is_some();
        self.sessions.all.get_mut(&id)?.need(self.now, sends, spare, held)
    }

    pub(super) fn meet(&mut self, id: SessionId, need: Need) {
        match need {
            Need::Send(Asked::Renewal, _) if self.shutdown.has_stopped() => {}
            Need::Send(asked, request) => {
                self.send(request, Exchange::Session(id, (self.now, asked)))
            }
            Need::Serve(names) => names.into_iter().for_each(|name| self.names.touch(name)),
            Need::TakeBack(contenders) => contenders.into_iter().for_each(|of| self.delete(of)),
            Need::Read(since, but) => {
                let missing = |it: &Contender| {
                    let late = it.held().is_some_and(|held| held.since > since);
                    !late && it.key.as_ref().is_some_and(|key| !but.contains(key.as_bytes()))
                };
                let missing = self.under(id).filter(|(_, it)| missing(it)).map(|(of, _)| of);
                missing.collect::<Vec<_>>().into_iter().for_each(|of| self.want_read(of));
            }
            Need::ReadInTurn => {
                let watched = |of: ContenderId| self.view.get(of.name, Whose::Holds(id)).is_some();
                let guarded = self.under(id).filter(|(of, it)| it.held().is_some() && watched(*of));
                let guarded: Vec<ContenderId> = guarded.map(|(of, _)| of).collect();
                let turns = u32::try_from(guarded.len().div_ceil(READS)).unwrap_or(u32::MAX);
                for (together, turn) in guarded.chunks(READS).zip(1..) {
                    let at = self.now + LIST / turns * turn;
                    together.iter().for_each(|of| self.read_at(*of, at));
                }
            }
            Need::Leave(lost) => self.leave_session(id, lost),
            Need::GiveUp(why) => self.give_up_session(id, &why),
            Need::End => {
                // Their keys are deleted with the lease.
                let ended = self.sessions.end(id).into_iter();
                ended.flat_map(|it| it.ambiguous).for_each(|of| self.remove(of));
            }
        }
    }

    /// Returns the contenders of a session.
    fn under(&self, id: SessionId) -> impl Iterator<Item = (ContenderId, &Contender)> {
        let all = self.sessions.all.get(&id).into_iter().flat_map(|it| &it.contenders);
        all.inspect(|_| step()).filter_map(|of| Some((*of, self.names.contender(*of)?)))
    }

    /// Takes in that etcd was wiped, or restored from a snapshot: all ownership is lost (rule P35).
    pub(super) fn lose_history(&mut self) {
        let opened = self.sessions.all.iter().filter(|(_, it)| it.has_opened());
        for id in opened.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.leave_session(id, Some(LossCause::Wiped));
        }
        // The watches wait for revisions that the new history may not reach for days.
        let watched = self.view.names.values().map(|(name, _)| *name);
        for name in watched.collect::<BTreeSet<_>>() {
            self.outputs.extend(self.view.close(name, |_| true));
            self.names.touch(name);
        }
    }

    /// Ends a session that cannot be opened. Refuses the calls with its TTL that wait for it, or for the names of its contenders.
    fn give_up_session(&mut self, id: SessionId, why: &Refused) {
        let Some(session) = self.sessions.end(id) else { return };
        let warming = self.sessions.warming.iter().filter(|(of, _)| *of == session.ttl_secs);
        let mut calls: Vec<CallId> = warming.map(|(_, call)| *call).collect();
        for id in session.contenders {
            let waiters = self.names.get(id.name).into_iter().flat_map(|it| it.waiters.values());
            let ttl_secs = |call| self.calls.get(call).map(|it| it.wish.ttl_secs);
            calls.extend(waiters.copied().filter(|call| ttl_secs(*call) == Some(session.ttl_secs)));
            self.remove(id);
        }
        calls.into_iter().for_each(|call| self.refuse(call, why.clone()));
    }

    /// Stops acquisitions under a session (rule P10). If it is lost, its bodies stop, and its waiters queue again (rule P28).
    pub(super) fn leave_session(&mut self, id: SessionId, lost: Option<LossCause>) {
        let lease = self.sessions.wake(id).and_then(|session| session.leave(lost.is_some()));
        let Some(lease) = lease else { return };
        // If a body has already seen another cause, that one stands.
        let lost = lost.map(|cause| lease.deadline.lose(cause));
        self.sessions.note_room(id);
        for id in self.under(id).map(|(of, _)| of).collect::<Vec<_>>() {
            let Some(contender) = self.names.contender(id) else { continue };
            match (&contender.state, lost) {
                (State::Pending, _) => self.remove(id),
                (State::Putting | State::Unsettled, _) | (State::Parting, Some(_)) => {
                    self.names.detach(id);
                }
                // Otherwise it would block its successor. Its lease may still exist, for bodies or if only this process lost it.
                (State::Waiting, _) => {
                    self.names.detach(id);
                    self.delete(id);
                }
                (State::Held(_), Some(cause)) => self.lose_contender(id, cause),
                // Bodies and deletes continue under a retired session.
                (State::Held(_) | State::Parting, None) => {}
            }
        }
    }
}
