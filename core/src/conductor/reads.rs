//! Reads and watches: what is asked when, and what answers and events mean for contenders.
//!
//! `None`: what a step was about is gone.

use super::{Core, Exchange};
use crate::contender::State;
use crate::ids::{ContenderId, Revision, WatchId};
use crate::mistakes::{Mistake, mistake};
use crate::moment::Moment;
use crate::observe::{HOLDER, RELIES, Read, Seen, WAITER};
use crate::output::LossCause;
use crate::ownership::Ownership;
use crate::request::{Event, Request, TxnAnswer, WatchEvent};
use crate::timers::Timer;
use crate::transactions;

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

    /// A contender may wait, as of this revision: what excludes it is watched, or read. Then the heads of its names are served.
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

    /// When a contender that waits is read next: early beside a fresh watch, and in time for its call to learn who owns the name.
    fn read_later(&mut self, id: ContenderId) -> Option<()> {
        let names = self.contenders.get(id)?.names().clone();
        let queue = self.queues.get(names.first()?)?;
        let mut queues = names.iter().filter_map(|name| self.queues.get(name));
        let after = match self.observe.early(self.now, names.first()?) {
            Some(early) => early,
            None if queues.any(|queue| queue.owner().is_some()) => self.jittered(WAITER),
            None => {
                let until = self.calls.waiting(queue.head()?.call)?.until;
                until.map_or(RELIES, |until| ((until - self.now) / 2).min(RELIES))
            }
        };
        self.timers.set(Timer::Read(id), self.now + after);
        Some(())
    }

    /// Watches what matters of the names of a contender, from this revision on.
    fn watch(&mut self, id: ContenderId, revision: Revision) -> Option<()> {
        let contender = self.contenders.get(id)?;
        for part in contender.parts() {
            let held = contender.ownership().is_some();
            let queue = self.queues.get(&part.name);
            let prefix = match held {
                true if queue.is_some_and(|queue| queue.in_line().is_some()) => continue, // that one watches more
                true => part.guarded(),
                false => part.watched(self.settings.near),
            };
            let opened = self
                .observe
                .open(self.now, &part.name, prefix, revision, held);
            self.outputs.extend(opened);
        }
        Some(())
    }

    /// A contender is to be read; or one that is held is watched from now on.
    pub(super) fn read_due(&mut self, id: ContenderId) -> Option<()> {
        let contender = self.contenders.get(id)?;
        let (created, names) = (contender.created()?, contender.names().clone());
        let asked = contender.ownership().map(Ownership::is_asked);
        if asked.is_some() {
            let next = self.jittered(HOLDER);
            self.timers.set(Timer::Read(id), self.now + next);
        }
        if asked == Some(false) && !self.observe.are_guarded(&names) {
            // From its create revision on: whatever happened to its keys since is reported.
            return self.watch(id, created);
        }
        self.observe.read(id, asked.is_none());
        Some(())
    }

    /// Reads were not answered, or the answer is stale: they are sent again.
    pub(super) fn read_again(&mut self, reads: &[Read], stale: bool) {
        self.observe.read_done();
        if stale && !mistake(Mistake::OnlyAWipeIsLostHistory) {
            self.suspect_history(reads);
        }
        for read in reads {
            let pause = self.pause(self.exchanges.failures());
            self.timers
                .set(Timer::Read(read.contender), self.now + pause);
        }
    }

    /// Reads came from a member that lags, or from an etcd that has lost its history (rules P20, P35): a write finds out which.
    fn suspect_history(&mut self, reads: &[Read]) -> Option<()> {
        let id = self.contenders.get(reads.first()?.contender)?.session();
        self.sessions.wake(id)?.suspect();
        Some(())
    }

    /// Reads were answered.
    pub(super) fn read(&mut self, reads: Vec<Read>, sent: Moment, answer: TxnAnswer) {
        self.observe.read_done();
        let mut answers = answer.answers.into_iter();
        for read in reads {
            let seen = read.seen(&mut answers);
            self.saw(&read, seen, sent, answer.revision);
            self.watch_predecessors(read.contender, answer.revision);
        }
    }

    /// Takes in what a read shows of a contender.
    fn saw(
        &mut self,
        read: &Read,
        seen: Vec<Seen>,
        sent: Moment,
        revision: Revision,
    ) -> Option<()> {
        let id = read.contender;
        let contender = self.contenders.get_mut(id)?;
        let lease = self.sessions.get(contender.session())?.lease()?;
        let held = contender.ownership().is_some();
        // It was admitted meanwhile: what was ahead of it does not matter any more.
        if held == read.up_to.is_some() {
            return None;
        }
        if let Some(cause) = contender.lost_in(&seen, lease) {
            return self.own_key_gone(id, cause);
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
            let queue = self.queues.get_mut(&part.name)?;
            queue.see(self.now, others);
            if !held {
                queue.set_owner(seen.record.filter(|_| others));
            }
        }
        if let Some(ownership) = self.contenders.get_mut(id)?.ownership_mut() {
            ownership.read(self.now, sent, contended);
        }
        Some(())
    }

    /// A key of ours is gone, or was put by another client.
    pub(super) fn own_key_gone(&mut self, id: ContenderId, cause: LossCause) -> Option<()> {
        let contender = self.contenders.get(id)?;
        let session = contender.session();
        match contender.state() {
            State::Owned(ownership) if !ownership.is_lost() => self.lose_contender(id, cause)?,
            // What is left of it is in the way: out with it before the queue goes on.
            State::Waiting { .. } => self.delete(id),
            _ => return None,
        }
        // Perhaps the whole lease is gone: the sooner that is known, the sooner the others go on.
        self.renew(session);
        Some(())
    }

    /// A watch reported something.
    pub(super) fn watch_event(&mut self, watch: WatchId, event: WatchEvent) -> Option<()> {
        let name = self.observe.name_of(watch)?.clone();
        let WatchEvent::Changed(event) = event else {
            self.observe.close(&name);
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
        let id = own.or_else(|| self.queues.get(&name)?.in_line())?;
        let contender = self.contenders.get_mut(id)?;
        let lease = self.sessions.get(contender.session())?.lease()?;
        if let Some(cause) = own.and_then(|_| contender.lost_by(&event, lease)) {
            return self.own_key_gone(id, cause);
        }
        // A key of ours that is being put may be gone before its put is answered: that is kept in mind. That a predecessor has gone
        // does not make a contender the owner, only that all have (rule P14).
        if !contender.predecessor_deleted(&name, key, deleted?) {
            return None;
        }
        match contender.is_admitted() {
            true => self.work.push(&name),
            false if self.observe.is_watched_whole(&name) => {}
            false => self.observe.read(id, true),
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
