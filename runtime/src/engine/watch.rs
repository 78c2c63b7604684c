//! Many watches over one etcd watch stream (rules P16, P17, P19).

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{WatchOptions, WatchRequestSender, WatchResponse, WatchResponseStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use super::wire::{MAX_ANSWER, Wire, key_value};
use crate::clock::{Clock, Moment};
use crate::core::request::{Event, Key, Revision, WatchNews};

/// How long opening a stream may take, the first watch's confirmation included.
const OPEN: Duration = Duration::from_secs(3);

/// The stream outlives its last watch by this much: names come and go.
const LINGER: Duration = Duration::from_secs(1);

/// The first and the longest pause before another stream is opened.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(5));

/// A stream that lasted this long was sound: the pauses begin anew.
const SOUND: Duration = Duration::from_secs(5);

/// The first and the longest pause before a refused watch is tried again.
const REFUSED: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// One adding of a watch. The engine's ids come back; this does not, so late news of an earlier watch is told apart.
type Incarnation = u64;

/// The engine's watches. A task of its own talks to etcd, so nothing here waits for it.
pub(crate) struct Watches {
    wire: Wire,
    clock: Arc<dyn Clock>,
    incarnations: Incarnation,
    live: HashMap<u64, Incarnation>,
    task: Option<Task>,
}

/// The two ends of the task's channels; dropping them ends it.
struct Task {
    commands: UnboundedSender<Command>,
    news: UnboundedReceiver<(u64, Incarnation, WatchNews)>,
}

#[derive(Debug)]
enum Command {
    Add {
        id: u64,
        incarnation: Incarnation,
        prefix: Key,
        from: Revision,
    },
    Remove(Incarnation),
}

impl fmt::Debug for Watches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watches")
            .field("live", &self.live)
            .finish_non_exhaustive()
    }
}

impl Watches {
    pub(crate) fn new(wire: Wire, clock: Arc<dyn Clock>) -> Self {
        Self {
            wire,
            clock,
            incarnations: 0,
            live: HashMap::new(),
            task: None,
        }
    }

    /// Watches all keys below the prefix, from this revision on (not from the next one, rule P16). An id that is in
    /// use is replaced.
    pub(crate) fn add(&mut self, id: u64, prefix: Key, from: Revision) {
        self.incarnations += 1;
        let incarnation = self.incarnations;
        let replaced = self.live.insert(id, incarnation);
        let task = self
            .task
            .get_or_insert_with(|| Stream::spawn(self.wire.clone(), Arc::clone(&self.clock)));
        if let Some(replaced) = replaced {
            task.command(Command::Remove(replaced));
        }
        task.command(Command::Add {
            id,
            incarnation,
            prefix,
            from,
        });
    }

    /// No news of this id any more, not even what is under way.
    pub(crate) fn remove(&mut self, id: u64) {
        if let Some(incarnation) = self.live.remove(&id)
            && let Some(task) = &self.task
        {
            task.command(Command::Remove(incarnation));
        }
    }

    /// The next news; never, if nothing is watched. Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> (u64, WatchNews) {
        let Some(task) = &mut self.task else {
            return std::future::pending().await;
        };
        while let Some((id, incarnation, news)) = task.news.recv().await {
            if self.live.get(&id) != Some(&incarnation) {
                continue;
            }
            if matches!(news, WatchNews::Compacted) {
                self.live.remove(&id);
            }
            return (id, news);
        }
        std::future::pending().await
    }
}

impl Task {
    fn command(&self, command: Command) {
        // Refused only once the runtime is being shut down, and the task with it.
        let _ = self.commands.send(command);
    }
}

/// The task's side.
struct Stream {
    wire: Wire,
    clock: Arc<dyn Clock>,
    commands: UnboundedReceiver<Command>,
    news: UnboundedSender<(u64, Incarnation, WatchNews)>,
    table: Table,
}

/// Why a stream is not used any more.
enum End {
    /// Nothing is watched.
    Idle,
    /// A refused watch is to be tried again, with a new token.
    Renew,
    /// It broke.
    Broken,
    /// The engine is gone.
    Shutdown,
}

impl Stream {
    fn spawn(wire: Wire, clock: Arc<dyn Clock>) -> Task {
        let (commands, commanded) = unbounded_channel();
        let (telling, news) = unbounded_channel();
        let stream = Self {
            wire,
            clock,
            commands: commanded,
            news: telling,
            table: Table::default(),
        };
        tokio::spawn(stream.run());
        Task { commands, news }
    }

    async fn run(mut self) {
        let mut failures = 0;
        loop {
            let opened = self.clock.now();
            match self.session().await {
                End::Shutdown => return,
                End::Renew => failures = 0,
                End::Idle => {
                    failures = 0;
                    tokio::select! {
                        command = self.commands.recv() => match command {
                            Some(command) => self.table.apply(command),
                            None => return,
                        },
                        () = until(&*self.clock, self.table.wake()) => {}
                    }
                }
                End::Broken => {
                    if self.clock.now() - opened >= SOUND {
                        failures = 0;
                    }
                    let pause = pause(PAUSE, failures, &*self.clock);
                    failures += 1;
                    self.clock.sleep_until(self.clock.now() + pause).await;
                }
            }
        }
    }

    /// One etcd watch stream, with all watches that are due.
    async fn session(&mut self) -> End {
        while let Ok(command) = self.commands.try_recv() {
            self.table.apply(command);
        }
        let Some((first, key, options)) = self.table.begin(self.clock.now()) else {
            return End::Idle;
        };
        let (endpoint, connection) = match self.wire.connect().await {
            Ok(connected) => connected,
            Err(failure) => {
                tracing::debug!(?failure, "no watch stream");
                return End::Broken;
            }
        };
        // A stream begins with its first watch.
        let mut client = connection
            .client
            .watch_client()
            .max_decoding_message_size(MAX_ANSWER);
        let end = match timeout(OPEN, client.watch(key, Some(options))).await {
            Ok(Ok(stream)) => {
                self.table.unconfirmed.push_back(first);
                let (sender, answers) = stream.split();
                let wire = self.wire.clone();
                let lost = wire.lost(endpoint, &connection);
                self.relay(sender, answers, pin!(lost)).await
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "watch stream not opened");
                End::Broken
            }
            Err(_) => End::Broken,
        };
        match end {
            End::Broken => self.wire.abandon(endpoint, &connection),
            End::Renew => self.wire.authenticate(endpoint, &connection),
            End::Idle | End::Shutdown => {}
        }
        end
    }

    /// Sends what is to be sent and hands on what comes, until the stream ends.
    async fn relay(
        &mut self,
        mut sender: WatchRequestSender,
        mut answers: WatchResponseStream,
        mut lost: Pin<&mut impl Future<Output = ()>>,
    ) -> End {
        let mut idle = None;
        loop {
            if !self.table.watches.is_empty() {
                idle = None;
            } else if idle.is_none() {
                idle = Some(self.clock.now() + LINGER);
            }
            let next = self.table.outbox.front().copied();
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(command) => self.table.apply(command),
                    None => return End::Shutdown,
                },
                // Beside the answers, not before them: etcd may stop reading until its answers are read.
                sent = self.table.send(next, &mut sender), if next.is_some() => match sent {
                    Ok(()) => self.table.sent(),
                    Err(_) => return End::Broken,
                },
                answer = answers.message() => match answer {
                    Ok(Some(answer)) => self.take(&answer),
                    Ok(None) => return End::Broken,
                    Err(error) => {
                        tracing::debug!(%error, "watch stream broke");
                        return End::Broken;
                    }
                },
                // A frozen endpoint leaves a stream silent until the pings end it; an exchange may have noticed
                // earlier.
                () = lost.as_mut() => return End::Broken,
                () = until(&*self.clock, idle) => return End::Idle,
                () = until(&*self.clock, self.table.wake()) => return End::Renew,
            }
        }
    }

    fn take(&mut self, answer: &WatchResponse) {
        let wire_id = match answer.created() {
            true => self.table.confirm(answer.watch_id()),
            false => answer.watch_id(),
        };
        let Some(&incarnation) = self.table.wired.get(&wire_id) else {
            return; // cancelled by us
        };
        let Some(watch) = self.table.watches.get_mut(&incarnation) else {
            return;
        };
        let tell = |news| {
            // Refused only once the engine is gone.
            let _ = self.news.send((watch.id, incarnation, news));
        };
        if answer.canceled() && answer.compact_revision() > 0 {
            tell(WatchNews::Compacted);
            self.table.drop(incarnation);
        } else if answer.canceled() {
            let reason = answer.cancel_reason();
            // A stream keeps the token it was opened with, so a first refusal may mean no more than that this has
            // expired.
            let pause = if watch.refusals == 0 && self.wire.authenticates() {
                tracing::debug!(prefix = &*watch.prefix, reason, "watch refused");
                Duration::ZERO
            } else {
                // Without the key: its values may be nobody's business.
                tracing::warn!(reason, "etcd refuses a watch; trying again");
                pause(REFUSED, watch.refusals, &*self.clock)
            };
            self.table.wired.remove(&wire_id);
            watch.refusals += 1;
            watch.paused = Some(self.clock.now() + pause);
        } else {
            watch.refusals = 0;
            for event in answer.events().iter().filter_map(event) {
                watch.from = watch.from.max(revision(&event));
                tell(WatchNews::Event(event));
            }
        }
    }
}

/// What is watched, and what of it the open stream knows.
#[derive(Default)]
struct Table {
    watches: HashMap<Incarnation, Watch>,
    /// The watches of the open stream, by the ids etcd knows them by.
    wired: HashMap<i64, Incarnation>,
    /// What is still to be sent on the open stream.
    outbox: VecDeque<Outgoing>,
    /// Creations sent and not confirmed, oldest first.
    unconfirmed: VecDeque<i64>,
    /// etcd refuses an id that the stream has in use, and a cancel takes time: no id is used twice.
    wire_ids: i64,
}

struct Watch {
    id: u64,
    prefix: Key,
    /// Where the next stream resumes: the highest revision seen, because not all of its events may have come (rule
    /// P16).
    from: Revision,
    /// How often in a row etcd refused it.
    refusals: u32,
    /// Refused: not again before then.
    paused: Option<Moment>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outgoing {
    Create(i64),
    Cancel(i64),
}

impl Table {
    fn apply(&mut self, command: Command) {
        match command {
            Command::Add {
                id,
                incarnation,
                prefix,
                from,
            } => {
                let watch = Watch {
                    id,
                    prefix,
                    from,
                    refusals: 0,
                    paused: None,
                };
                self.watches.insert(incarnation, watch);
                self.create(incarnation);
            }
            Command::Remove(incarnation) => self.drop(incarnation),
        }
    }

    fn create(&mut self, incarnation: Incarnation) {
        self.wire_ids += 1;
        self.wired.insert(self.wire_ids, incarnation);
        self.outbox.push_back(Outgoing::Create(self.wire_ids));
    }

    fn drop(&mut self, incarnation: Incarnation) {
        self.watches.remove(&incarnation);
        let Some((&wire_id, _)) = self.wired.iter().find(|(_, wired)| **wired == incarnation)
        else {
            return;
        };
        self.wired.remove(&wire_id);
        let waiting = self.outbox.len();
        self.outbox
            .retain(|outgoing| *outgoing != Outgoing::Create(wire_id));
        if self.outbox.len() == waiting {
            self.outbox.push_back(Outgoing::Cancel(wire_id));
        }
    }

    /// Begins a new stream with all watches that are due; answers the first of them.
    fn begin(&mut self, now: Moment) -> Option<(i64, Vec<u8>, WatchOptions)> {
        self.wired.clear();
        self.outbox.clear();
        self.unconfirmed.clear();
        let mut due = Vec::new();
        for (incarnation, watch) in &mut self.watches {
            if watch.paused.is_none_or(|until| until <= now) {
                watch.paused = None;
                due.push(*incarnation);
            }
        }
        for incarnation in due {
            self.create(incarnation);
        }
        match self.outbox.pop_front()? {
            Outgoing::Create(wire_id) => {
                let (key, options) = self.creation(wire_id)?;
                Some((wire_id, key, options))
            }
            Outgoing::Cancel(_) => None,
        }
    }

    fn creation(&self, wire_id: i64) -> Option<(Vec<u8>, WatchOptions)> {
        let watch = self.watches.get(self.wired.get(&wire_id)?)?;
        let options = WatchOptions::new()
            .with_prefix()
            .with_start_revision(watch.from)
            .with_watch_id(wire_id);
        Some((watch.prefix.as_bytes().to_vec(), options))
    }

    async fn send(
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
            None => Ok(()),
        }
    }

    /// The first of the outbox is on its way.
    fn sent(&mut self) {
        if let Some(Outgoing::Create(wire_id)) = self.outbox.pop_front() {
            self.unconfirmed.push_back(wire_id);
        }
    }

    /// Which creation is confirmed (or refused): some etcd versions refuse with the id -1, but all answer in order.
    fn confirm(&mut self, wire_id: i64) -> i64 {
        match self.unconfirmed.iter().position(|id| *id == wire_id) {
            Some(at) => self.unconfirmed.remove(at).unwrap_or(wire_id),
            None => self.unconfirmed.pop_front().unwrap_or(wire_id),
        }
    }

    /// When the first refused watch is due again.
    fn wake(&self) -> Option<Moment> {
        self.watches.values().filter_map(|watch| watch.paused).min()
    }
}

/// etcd-client panics on event types it does not know, so not the type tells a deletion, but that it has no create
/// revision.
fn event(event: &etcd_client::Event) -> Option<Event> {
    let kv = event.kv()?;
    Some(match kv.create_revision() {
        0 => Event::Delete {
            key: kv.key().to_vec(),
            revision: kv.mod_revision(),
        },
        _ => Event::Put(key_value(kv.clone())),
    })
}

fn revision(event: &Event) -> Revision {
    match event {
        Event::Put(kv) => kv.mod_revision,
        Event::Delete { revision, .. } => *revision,
    }
}

/// Completes at that moment; never, if there is none.
async fn until(clock: &dyn Clock, when: Option<Moment>) {
    match when {
        Some(when) => clock.sleep_until(when).await,
        None => std::future::pending().await,
    }
}

/// The pause after so many failures: doubled each time, and half of it by chance, so that a fleet does not come back
/// in step.
fn pause((first, longest): (Duration, Duration), failures: u32, clock: &dyn Clock) -> Duration {
    let whole = first.saturating_mul(1 << failures.min(16)).min(longest);
    let chance = clock.now().since_boot().subsec_micros() % 1000;
    whole / 2 + whole * chance / 2000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::BootClock;

    fn add(id: u64, incarnation: Incarnation) -> Command {
        Command::Add {
            id,
            incarnation,
            prefix: "locks/a/".into(),
            from: 7,
        }
    }

    #[test]
    fn an_id_taken_again_is_another_watch_to_etcd() {
        let mut table = Table::default();
        table.apply(add(1, 1));
        table.sent();
        table.apply(Command::Remove(1));
        table.apply(add(1, 2));
        assert_eq!(table.outbox, [Outgoing::Cancel(1), Outgoing::Create(2)]);
        assert_eq!(table.wired.get(&1), None);
        assert_eq!(table.wired.get(&2), Some(&2));
    }

    #[test]
    fn what_was_not_sent_need_not_be_cancelled() {
        let mut table = Table::default();
        table.apply(add(1, 1));
        table.apply(Command::Remove(1));
        assert!(table.outbox.is_empty());
        assert!(table.watches.is_empty());
    }

    #[test]
    fn a_new_stream_watches_all_that_is_due() {
        let now = Moment::after_boot(Duration::from_secs(9));
        let mut table = Table::default();
        for incarnation in 1..=3 {
            table.apply(add(incarnation, incarnation));
        }
        let later = now + Duration::from_secs(1);
        if let Some(watch) = table.watches.get_mut(&2) {
            watch.paused = Some(later);
        }
        assert!(table.begin(now).is_some());
        assert_eq!((table.wired.len(), table.outbox.len()), (2, 1));
        assert_eq!(table.wake(), Some(later));
        assert!(table.begin(later).is_some());
        assert_eq!((table.wired.len(), table.outbox.len()), (3, 2));
        assert_eq!(table.wake(), None);
    }

    #[test]
    fn a_refusal_without_an_id_is_the_oldest_creation() {
        let mut table = Table::default();
        table.unconfirmed.extend([4, 5, 6]);
        assert_eq!(table.confirm(5), 5);
        assert_eq!(table.confirm(-1), 4);
        assert_eq!(table.confirm(-1), 6);
        assert_eq!(table.confirm(-1), -1);
    }

    #[test]
    fn pauses_grow_and_end() {
        for failures in 0..100 {
            let pause = pause(PAUSE, failures, &BootClock);
            assert!(pause >= PAUSE.0 / 2 && pause <= PAUSE.1, "{pause:?}");
        }
        assert!(pause(PAUSE, 99, &BootClock) >= PAUSE.1 / 2);
    }
}
