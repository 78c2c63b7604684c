//! Table of the watches, with their state on the open stream.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use etcd_client::{Error, WatchFilterType, WatchOptions, WatchRequestSender};
use etcd_locked_core::{Key, Revision, WatchId};

use crate::clock::Moment;

/// Number of silent periods, in spite of progress requests, after which a stream counts as dead.
const SILENT: u32 = 2;

/// Command of the engine to the task that talks to etcd.
pub(crate) enum Command {
    /// Watches all keys below the prefix, starting with this revision (not the one after it, rule P16), or now. Reports deletions and,
    /// with `puts`, puts. No id is used twice.
    Add { id: WatchId, prefix: Key, from: Option<Revision>, puts: bool },
    /// Ends a watch. Its events may still arrive, and the core ignores them.
    Remove(WatchId),
}

/// The watches, and what the open stream knows of them.
#[derive(Default)]
pub(super) struct Table {
    pub(super) watches: HashMap<WatchId, Watch>,
    /// Watches of the open stream that etcd has confirmed, by the ids from etcd.
    pub(super) wired: HashMap<i64, WatchId>,
    /// Creations sent but not confirmed, oldest first, with the requested ids. etcd uses these; its gRPC proxy chooses others.
    unconfirmed: VecDeque<(i64, WatchId)>,
    /// Requests to send on the open stream, in this order. The creation of a removed watch is skipped.
    outbox: VecDeque<Outgoing>,
    /// Refused watches, by when they are due. Some may have been removed since.
    paused: BTreeSet<(Moment, WatchId)>,
    /// How many periods the open stream has been silent, each with a progress request.
    pub(super) silent: u32,
    /// Last requested id. No id is used twice: etcd refuses an id that the stream still uses, and a cancel takes time.
    wire_ids: i64,
}

pub(super) struct Watch {
    prefix: Key,
    /// Revision at which the next stream resumes: the highest one seen, because some of its events may be missing (rule P16).
    pub(super) from: Option<Revision>,
    puts: bool,
    /// How often in a row etcd refused it.
    pub(super) refusals: u32,
    /// Its id from etcd on the open stream.
    given: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outgoing {
    /// Creates a watch with this id.
    Create(i64, WatchId),
    Cancel(i64),
    /// Requests a sign of life from etcd.
    Progress,
}

impl Table {
    pub(super) fn apply(&mut self, command: Command) {
        match command {
            Command::Add { id, prefix, from, puts } => {
                self.watches.insert(id, Watch { prefix, from, puts, refusals: 0, given: None });
                self.create(id);
            }
            Command::Remove(id) => self.remove(id),
        }
    }

    fn create(&mut self, id: WatchId) {
        self.wire_ids += 1;
        self.outbox.push_back(Outgoing::Create(self.wire_ids, id));
    }

    pub(super) fn next(&mut self) -> Option<Outgoing> {
        while let Some(Outgoing::Create(_, id)) = self.outbox.front()
            && !self.watches.contains_key(id)
        {
            self.outbox.pop_front();
        }
        self.outbox.front().copied()
    }

    /// Forgets a watch. If etcd has not confirmed it yet, it is cancelled on confirmation.
    pub(super) fn remove(&mut self, id: WatchId) {
        if let Some(given) = self.watches.remove(&id).and_then(|watch| watch.given) {
            self.wired.remove(&given);
            self.outbox.push_back(Outgoing::Cancel(given));
        }
    }

    /// Begins a new stream with all watches that are due; returns the first of them, which opens it.
    pub(super) fn begin(&mut self, now: Moment) -> Option<(Vec<u8>, WatchOptions)> {
        self.resume(now);
        self.wired.clear();
        self.unconfirmed.clear();
        self.outbox.clear();
        self.silent = 0;
        let paused: HashSet<_> = self.paused.iter().map(|(_, id)| *id).collect();
        let due = |(id, watch): (&WatchId, &mut Watch)| {
            watch.given = None;
            (!paused.contains(id)).then_some(*id)
        };
        let due: Vec<_> = self.watches.iter_mut().filter_map(due).collect();
        due.into_iter().for_each(|id| self.create(id));
        match self.outbox.front()? {
            Outgoing::Create(wire_id, id) => self.creation(*wire_id, *id),
            Outgoing::Cancel(_) | Outgoing::Progress => None,
        }
    }

    /// Pauses a refused watch, which the stream does not know, until this time.
    pub(super) fn pause(&mut self, id: WatchId, until: Moment) {
        if let Some(watch) = self.watches.get_mut(&id) {
            watch.given.take().map(|given| self.wired.remove(&given));
            self.paused.insert((until, id));
        }
    }

    /// Creates the refused watches that are due again.
    pub(super) fn resume(&mut self, now: Moment) {
        while let Some(&(until, id)) = self.paused.first()
            && until <= now
        {
            self.paused.pop_first();
            self.create(id);
        }
    }

    fn creation(&self, wire_id: i64, id: WatchId) -> Option<(Vec<u8>, WatchOptions)> {
        let watch = self.watches.get(&id)?;
        let mut options = WatchOptions::new()
            .with_prefix()
            .with_start_revision(watch.from.map_or(0, Revision::get))
            .with_watch_id(wire_id);
        if !watch.puts {
            options = options.with_filters([WatchFilterType::NoPut]);
        }
        Some((watch.prefix.as_bytes().to_vec(), options))
    }

    pub(super) async fn send(
        &self,
        outgoing: Option<Outgoing>,
        sender: &mut WatchRequestSender,
    ) -> Result<(), Error> {
        match outgoing {
            Some(Outgoing::Create(wire_id, id)) => match self.creation(wire_id, id) {
                Some((key, options)) => sender.watch(key, Some(options)).await,
                None => Ok(()),
            },
            Some(Outgoing::Cancel(wire_id)) => sender.cancel(wire_id).await,
            Some(Outgoing::Progress) => sender.request_progress().await,
            None => Ok(()),
        }
    }

    /// Records that a period has passed. Returns true if the stream still counts as alive, and then requests progress. etcd responds only
    /// if it knows watches, so without one on the stream its silence says nothing.
    pub(super) fn period(&mut self) -> bool {
        if self.wired.is_empty() && self.unconfirmed.is_empty() && self.outbox.is_empty() {
            self.silent = 0;
            return true;
        }
        if self.silent >= SILENT {
            return false;
        }
        self.silent += 1;
        if !self.outbox.contains(&Outgoing::Progress) {
            self.outbox.push_back(Outgoing::Progress);
        }
        true
    }

    /// Records that the first request of the outbox was sent.
    pub(super) fn sent(&mut self) {
        if let Some(Outgoing::Create(wire_id, id)) = self.outbox.pop_front() {
            self.unconfirmed.push_back((wire_id, id));
        }
    }

    /// Records that etcd has confirmed or refused a creation, and returns the watch. Some etcd versions refuse with the id -1. A gRPC
    /// proxy counts from 0 on each stream, below all unconfirmed ids. But all respond in order.
    pub(super) fn confirm(&mut self, given: i64, refused: bool) -> Option<WatchId> {
        let asked = self.unconfirmed.iter().position(|(asked, _)| *asked == given);
        let (_, id) = self.unconfirmed.remove(asked.unwrap_or(0))?;
        match self.watches.get_mut(&id) {
            _ if refused => {}
            Some(watch) => {
                watch.given = Some(given);
                self.wired.insert(given, id);
            }
            None => self.outbox.push_back(Outgoing::Cancel(given)),
        }
        Some(id)
    }

    /// Returns when the first refused watch is due again.
    pub(super) fn wake(&self) -> Option<Moment> {
        self.paused.first().map(|(until, _)| *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(ids: &[u64]) -> Table {
        let mut table = Table::default();
        for id in ids {
            let from = Revision::new(7);
            let prefix = "locks/a/".into();
            table.apply(Command::Add { id: WatchId(*id), prefix, from, puts: true });
            table.sent();
        }
        table
    }

    #[test]
    fn a_watch_removed_early_is_cancelled_when_confirmed() {
        let mut table = sent(&[1]);
        table.apply(Command::Remove(WatchId(1)));
        assert_eq!(table.next(), None);
        table.confirm(1, false);
        assert_eq!(table.next(), Some(Outgoing::Cancel(1)));
    }

    #[test]
    fn a_refusal_without_an_id_is_the_oldest_creation() {
        let mut table = sent(&[4, 5, 6]);
        assert_eq!(table.confirm(2, true), Some(WatchId(5)));
        assert_eq!(table.confirm(-1, true), Some(WatchId(4)));
        assert_eq!(table.confirm(-1, true), Some(WatchId(6)));
        assert_eq!(table.confirm(-1, true), None);
    }
}
