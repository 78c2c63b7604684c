//! Table of the watches, and of their state on the open stream.

use std::collections::{BTreeSet, HashMap, VecDeque};

use etcd_client::{WatchFilterType, WatchOptions, WatchRequestSender};
use etcd_locked_core::{Key, Revision, WatchId};

use crate::clock::Moment;

/// So many periods of silence, although progress was asked for, and a stream is dead.
const SILENT: u32 = 2;

/// What the task that talks to etcd is to do.
#[derive(Debug)]
pub(super) enum Command {
    Add { id: WatchId, prefix: Key, from: Revision, puts: bool },
    Remove(WatchId),
}

/// What is watched, and what of it the open stream knows.
#[derive(Default)]
pub(super) struct Table {
    pub(super) watches: HashMap<WatchId, Watch>,
    /// The watches of the open stream that etcd has confirmed, by the ids it has given them.
    pub(super) wired: HashMap<i64, WatchId>,
    /// Those that it has not, by the ids that were asked for. etcd gives these, its gRPC proxy others.
    asked: HashMap<i64, WatchId>,
    /// What is still to be sent on the open stream, in this order. The creation of a watch that was dropped is passed over.
    outbox: VecDeque<Outgoing>,
    /// Creations sent and not confirmed, oldest first.
    pub(super) unconfirmed: VecDeque<i64>,
    /// The refused watches, by when they are due.
    paused: BTreeSet<(Moment, WatchId)>,
    /// How many periods the open stream has been silent, each with a request for progress.
    silent: u32,
    /// etcd refuses an id that the stream has in use, and a cancel takes time: no id is used twice.
    wire_ids: i64,
}

pub(super) struct Watch {
    prefix: Key,
    /// Where the next stream resumes: the highest revision seen, because not all of its events may have come (rule
    /// P16).
    pub(super) from: Revision,
    puts: bool,
    /// How often in a row etcd refused it.
    pub(super) refusals: u32,
    /// Refused: not again before then.
    paused: Option<Moment>,
    /// What the open stream knows of it.
    wire: Option<Wire>,
}

/// A watch on the open stream.
#[derive(Debug, Clone, Copy)]
struct Wire {
    asked: i64,
    /// The id that etcd has confirmed.
    given: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outgoing {
    Create(i64),
    Cancel(i64),
    /// Asks etcd for a sign of life.
    Progress,
}

impl Table {
    pub(super) fn apply(&mut self, command: Command) {
        match command {
            Command::Add { id, prefix, from, puts } => {
                let watch = Watch { prefix, from, puts, refusals: 0, paused: None, wire: None };
                self.watches.insert(id, watch);
                self.create(id);
            }
            Command::Remove(id) => self.drop(id),
        }
    }

    fn create(&mut self, id: WatchId) {
        self.wire_ids += 1;
        let asked = self.wire_ids;
        self.outbox.push_back(Outgoing::Create(asked));
        if let Some(watch) = self.watches.get_mut(&id) {
            watch.wire = Some(Wire { asked, given: None });
        }
        self.asked.insert(asked, id);
    }

    /// Returns what is to be sent next.
    pub(super) fn next(&mut self) -> Option<Outgoing> {
        while let Some(Outgoing::Create(id)) = self.outbox.front()
            && !self.asked.contains_key(id)
        {
            self.outbox.pop_front();
        }
        self.outbox.front().copied()
    }

    pub(super) fn drop(&mut self, id: WatchId) {
        let Some(watch) = self.watches.remove(&id) else {
            return;
        };
        if let Some(until) = watch.paused {
            self.paused.remove(&(until, id));
        }
        if let Some(wire) = watch.wire {
            self.asked.remove(&wire.asked);
            // What etcd does not know yet need not be cancelled, and what it has not confirmed is cancelled when it does.
            if let Some(given) = wire.given {
                self.wired.remove(&given);
                self.outbox.push_back(Outgoing::Cancel(given));
            }
        }
    }

    /// Begins a new stream with all watches that are due; answers the first of them.
    pub(super) fn begin(&mut self, now: Moment) -> Option<(i64, Vec<u8>, WatchOptions)> {
        self.wired.clear();
        self.asked.clear();
        self.outbox.clear();
        self.unconfirmed.clear();
        self.silent = 0;
        let ready = |(id, watch): (&WatchId, &mut Watch)| {
            watch.wire = None;
            watch.paused.is_none().then_some(*id)
        };
        let ready: Vec<_> = self.watches.iter_mut().filter_map(ready).collect();
        for id in ready {
            self.create(id);
        }
        self.resume(now);
        match self.outbox.pop_front()? {
            Outgoing::Create(wire_id) => {
                let (key, options) = self.creation(wire_id)?;
                Some((wire_id, key, options))
            }
            Outgoing::Cancel(_) | Outgoing::Progress => None,
        }
    }

    /// The watch was refused, so the stream does not know it: not again before then.
    pub(super) fn pause(&mut self, id: WatchId, until: Moment) {
        if let Some(watch) = self.watches.get_mut(&id) {
            if let Some(given) = watch.wire.take().and_then(|wire| wire.given) {
                self.wired.remove(&given);
            }
            watch.paused = Some(until);
            self.paused.insert((until, id));
        }
    }

    /// Creates the refused watches that are due again.
    pub(super) fn resume(&mut self, now: Moment) {
        while let Some(&(until, id)) = self.paused.first()
            && until <= now
        {
            self.paused.pop_first();
            if let Some(watch) = self.watches.get_mut(&id) {
                watch.paused = None;
                self.create(id);
            }
        }
    }

    fn creation(&self, wire_id: i64) -> Option<(Vec<u8>, WatchOptions)> {
        let watch = self.watches.get(self.asked.get(&wire_id)?)?;
        let mut options = WatchOptions::new()
            .with_prefix()
            .with_start_revision(watch.from.get())
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
    ) -> Result<(), etcd_client::Error> {
        match outgoing {
            Some(Outgoing::Create(wire_id)) => match self.creation(wire_id) {
                Some((key, options)) => sender.watch(key, Some(options)).await,
                None => Ok(()),
            },
            Some(Outgoing::Cancel(wire_id)) => sender.cancel(wire_id).await,
            Some(Outgoing::Progress) => sender.request_progress().await,
            None => Ok(()),
        }
    }

    /// Notes that a period has passed; answers whether the stream is still believed to live, and asks for progress if so. etcd
    /// answers for the watches that it knows, so without one on the stream its silence says nothing.
    pub(super) fn period(&mut self) -> bool {
        if self.wired.is_empty() && self.asked.is_empty() {
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

    /// Notes that etcd has answered on the stream, whatever it was.
    pub(super) fn answered(&mut self) {
        self.silent = 0;
    }

    /// The first of the outbox is on its way.
    pub(super) fn sent(&mut self) {
        if let Some(Outgoing::Create(wire_id)) = self.outbox.pop_front() {
            self.unconfirmed.push_back(wire_id);
        }
    }

    /// Notes that etcd has confirmed or refused a creation; returns the watch, unless it was removed meanwhile.
    pub(super) fn confirm(&mut self, given: i64, refused: bool) -> Option<WatchId> {
        let asked = self.answered_creation(given)?;
        let id = self.asked.remove(&asked);
        if refused {
            return id;
        }
        match id {
            Some(id) => {
                self.wired.insert(given, id);
                let wire = self.watches.get_mut(&id)?.wire.as_mut()?;
                wire.given = Some(given);
            }
            None => self.outbox.push_back(Outgoing::Cancel(given)),
        }
        id
    }

    /// Which creation is answered: some etcd versions refuse with the id -1, and a gRPC proxy counts from 0 on each stream, below
    /// all ids that are unconfirmed. But all answer in order.
    fn answered_creation(&mut self, given: i64) -> Option<i64> {
        match self.unconfirmed.iter().position(|id| *id == given) {
            Some(at) => self.unconfirmed.remove(at),
            None => self.unconfirmed.pop_front(),
        }
    }

    /// When the first refused watch is due again.
    pub(super) fn wake(&self) -> Option<Moment> {
        self.paused.first().map(|(until, _)| *until)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// What is sent, one after the other.
    fn outbox(table: &mut Table) -> Vec<Outgoing> {
        let mut sent = Vec::new();
        while let Some(next) = table.next() {
            sent.push(next);
            table.sent();
        }
        sent
    }

    fn add(id: u64) -> Command {
        let from = Revision::new(7).unwrap();
        Command::Add { id: id.into(), prefix: "locks/a/".into(), from, puts: true }
    }

    #[test]
    fn a_watch_removed_early_is_cancelled_when_confirmed() {
        let mut table = Table::default();
        table.apply(add(1));
        table.sent();
        table.apply(Command::Remove(1.into()));
        assert_eq!(outbox(&mut table), []);
        assert_eq!(table.confirm(1, false), None);
        assert_eq!(outbox(&mut table), [Outgoing::Cancel(1)]);
    }

    #[test]
    fn a_watch_goes_by_the_id_that_it_was_given() {
        let mut table = Table::default();
        for id in 1..=2 {
            table.apply(add(id));
            table.sent();
        }
        assert_eq!(table.confirm(0, false), Some(1.into()));
        assert_eq!(table.confirm(1, false), Some(2.into()));
        assert_eq!(table.wired, HashMap::from([(0, 1.into()), (1, 2.into())]));
        table.apply(Command::Remove(2.into()));
        assert_eq!(outbox(&mut table), [Outgoing::Cancel(1)]);
        assert_eq!(table.wired, HashMap::from([(0, 1.into())]));
    }

    #[test]
    fn a_new_stream_watches_all_that_is_due() {
        let now = Moment::after_boot(Duration::from_secs(9));
        let mut table = Table::default();
        for id in 1..=3 {
            table.apply(add(id));
        }
        let later = now + Duration::from_secs(1);
        table.pause(2.into(), later);
        assert!(table.begin(now).is_some());
        assert_eq!((table.asked.len(), table.outbox.len()), (2, 1));
        assert_eq!(table.wake(), Some(later));
        assert!(table.begin(later).is_some());
        assert_eq!((table.asked.len(), table.outbox.len()), (3, 2));
        assert_eq!(table.wake(), None);
    }

    #[test]
    fn a_refusal_without_an_id_is_the_oldest_creation() {
        let mut table = Table::default();
        table.unconfirmed.extend([4, 5, 6]);
        assert_eq!(table.answered_creation(5), Some(5));
        assert_eq!(table.answered_creation(-1), Some(4));
        assert_eq!(table.answered_creation(-1), Some(6));
        assert_eq!(table.answered_creation(-1), None);
    }

    #[test]
    fn a_refused_watch_is_created_again_on_the_same_stream() {
        let now = Moment::after_boot(Duration::from_secs(9));
        let mut table = Table::default();
        for id in 1..=3 {
            table.apply(add(id));
        }
        table.outbox.clear();
        for id in 1..=3 {
            table.pause(id.into(), now + Duration::from_secs(id));
        }
        table.apply(Command::Remove(1.into()));
        assert_eq!(table.wake(), Some(now + Duration::from_secs(2)));
        table.resume(now + Duration::from_secs(2));
        assert_eq!(outbox(&mut table), [Outgoing::Create(4)]);
        assert_eq!(table.wake(), Some(now + Duration::from_secs(3)));
    }
}
