//! Many watches over one etcd watch stream (rules P16, P17, P19).

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedSender;

use super::wire::Wire;
use crate::clock::Clock;
use crate::core::request::{Event, Key, Revision, WatchNews};

mod stream;
mod table;

use stream::Stream;

/// The pause before a task that ended by itself is followed by another.
const AGAIN: Duration = Duration::from_secs(1);

/// One adding of a watch. The engine's ids come back; this does not, so late news of an earlier watch is told apart.
type Incarnation = u64;

/// What the engine is told of its watches, to hand it to [`Watches::hear`].
#[derive(Debug)]
pub(crate) enum Told {
    News(u64, Incarnation, WatchNews),
    /// The task ended, by itself.
    Ended,
    /// The pause after that is over.
    Again,
}

/// How it is told.
pub(crate) type Teller = Arc<dyn Fn(Told) + Send + Sync>;

/// The engine's watches. A task of its own talks to etcd, so nothing here waits for it.
pub(crate) struct Watches {
    wire: Wire,
    clock: Arc<dyn Clock>,
    /// Where the task runs.
    runtime: Handle,
    teller: Teller,
    incarnations: Incarnation,
    live: HashMap<u64, Live>,
    task: Option<Task>,
    /// The task ended though things are watched: another one is started in a moment.
    pausing: bool,
}

struct Live {
    incarnation: Incarnation,
    prefix: Key,
    /// Where another task resumes.
    from: Revision,
    puts: bool,
}

/// What the task is told by; dropping it ends it.
struct Task {
    commands: UnboundedSender<Command>,
}

#[derive(Debug)]
enum Command {
    Add {
        id: u64,
        incarnation: Incarnation,
        prefix: Key,
        from: Revision,
        puts: bool,
    },
    Remove(Incarnation),
}

impl fmt::Debug for Watches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watches")
            .field("live", &self.live.len())
            .finish_non_exhaustive()
    }
}

impl Watches {
    pub(crate) fn new(wire: Wire, clock: Arc<dyn Clock>, runtime: Handle, teller: Teller) -> Self {
        Self {
            wire,
            clock,
            runtime,
            teller,
            incarnations: 0,
            live: HashMap::new(),
            task: None,
            pausing: false,
        }
    }

    /// Watches all keys below the prefix, from this revision on (not from the next one, rule P16): what is deleted, and if
    /// asked what is put. An id that is in use is replaced.
    pub(crate) fn add(&mut self, id: u64, prefix: Key, from: Revision, puts: bool) {
        self.incarnations += 1;
        let live = Live {
            incarnation: self.incarnations,
            prefix,
            from,
            puts,
        };
        let addition = live.addition(id);
        let replaced = self.live.insert(id, live);
        match &self.task {
            Some(task) => {
                if let Some(replaced) = replaced {
                    task.command(Command::Remove(replaced.incarnation));
                }
                task.command(addition);
            }
            None if !self.pausing => self.start(),
            None => {} // with the others
        }
    }

    /// No news of this id any more, not even what is under way.
    pub(crate) fn remove(&mut self, id: u64) {
        if let Some(live) = self.live.remove(&id)
            && let Some(task) = &self.task
        {
            task.command(Command::Remove(live.incarnation));
        }
    }

    /// What of that is for the core.
    pub(crate) fn hear(&mut self, told: Told) -> Option<(u64, WatchNews)> {
        match told {
            Told::News(id, incarnation, news) => {
                return self.is_told(id, incarnation, &news).then_some((id, news));
            }
            Told::Ended => self.ended(),
            Told::Again => {
                self.pausing = false;
                if !self.live.is_empty() {
                    self.start();
                }
            }
        }
        None
    }

    /// Whether these are news of a live watch; if so, they are accounted for.
    fn is_told(&mut self, id: u64, incarnation: Incarnation, news: &WatchNews) -> bool {
        let Some(live) = self.live.get_mut(&id) else {
            return false;
        };
        if live.incarnation != incarnation {
            return false;
        }
        match news {
            WatchNews::Compacted => {
                self.live.remove(&id);
            }
            WatchNews::Event(event) => live.from = live.from.max(event.revision()),
        }
        true
    }

    /// A task of its own, for all that is watched.
    fn start(&mut self) {
        let (stream, task) = Stream::new(
            self.wire.clone(),
            Arc::clone(&self.clock),
            Arc::clone(&self.teller),
        );
        self.runtime.spawn(stream.run());
        for (id, live) in &self.live {
            task.command(live.addition(*id));
        }
        self.task = Some(task);
    }

    /// The task has ended by itself, which only a panic in it can bring about. In a moment another one watches the
    /// same: whoever waits for a lock must not wait for ever.
    fn ended(&mut self) {
        self.task = None;
        tracing::error!(parent: None, "the task that watches etcd has ended; starting another");
        self.pausing = true;
        let (clock, teller) = (Arc::clone(&self.clock), Arc::clone(&self.teller));
        self.runtime.spawn(async move {
            clock.sleep_until(clock.now() + AGAIN).await;
            teller(Told::Again);
        });
    }
}

impl Live {
    fn addition(&self, id: u64) -> Command {
        Command::Add {
            id,
            incarnation: self.incarnation,
            prefix: self.prefix.clone(),
            from: self.from,
            puts: self.puts,
        }
    }
}

impl Task {
    fn command(&self, command: Command) {
        // Refused only once the task has ended; the next one is told everything.
        let _ = self.commands.send(command);
    }
}

impl Event {
    fn revision(&self) -> Revision {
        match self {
            Self::Put(kv) => kv.mod_revision,
            Self::Delete { revision, .. } => *revision,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;
    use crate::clock::BootClock;
    use crate::config::Config;

    #[tokio::test]
    async fn a_task_that_ended_is_followed_by_another_that_watches_the_same() {
        let clock: Arc<dyn Clock> = Arc::new(BootClock);
        let wire = Wire::new(&Config::new(["http://127.0.0.1:1"]), clock.clone()).unwrap();
        let (telling, mut told) = unbounded_channel();
        let teller: Teller = Arc::new(move |told| drop(telling.send(told)));
        let mut watches = Watches::new(wire.clone(), clock.clone(), Handle::current(), teller);
        let (stream, task) = Stream::new(wire, clock, Arc::clone(&watches.teller));
        watches.task = Some(task);
        watches.add(1, "locks/a/".into(), 7, true);
        watches.add(2, "locks/b/".into(), 8, true);
        let deletion = Event::Delete {
            key: b"locks/a/x".to_vec(),
            revision: 9,
        };
        let news = Told::News(1, 1, WatchNews::Event(deletion));
        assert!(matches!(watches.hear(news), Some((1, WatchNews::Event(_)))));
        drop(stream); // as a panic would
        let ended = told.recv().await.unwrap();
        assert!(matches!(ended, Told::Ended), "{ended:?}");
        assert!(watches.hear(ended).is_none());
        assert!(watches.task.is_none());
        watches.add(3, "locks/c/".into(), 9, true);
        watches.remove(2);
        assert!(watches.task.is_none(), "at once");
        let again = told.recv().await.unwrap();
        assert!(matches!(again, Told::Again), "{again:?}");
        assert!(watches.hear(again).is_none());
        assert!(watches.task.is_some() && !watches.pausing);
        let mut resumed: Vec<_> = watches.live.iter().map(|(id, it)| (*id, it.from)).collect();
        resumed.sort_unstable();
        assert_eq!(resumed, [(1, 9), (3, 9)]);
    }
}
