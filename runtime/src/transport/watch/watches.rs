//! Watches of one engine, as the engine adds and removes them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use etcd_locked_core::{Key, Revision, WatchEvent, WatchId};
use tokio::runtime::Handle;

use super::channel::{Command, Commands, Incarnation, StreamEvent, Submit, revision};
use super::stream::Stream;
use crate::clock::Clock;
use crate::transport::client::Client;

/// The pause between a task that ended by itself and the next one.
const AGAIN: Duration = Duration::from_secs(1);

/// The engine's watches. A task of its own talks to etcd, so nothing here waits for it.
pub(crate) struct Watches {
    client: Client,
    clock: Arc<dyn Clock>,
    /// Where the task runs.
    runtime: Handle,
    submit: Submit,
    incarnations: Incarnation,
    live: HashMap<WatchId, Live>,
    task: Option<Commands>,
    /// The task ended although there are watches: another one starts after a pause.
    pausing: bool,
}

struct Live {
    incarnation: Incarnation,
    prefix: Key,
    /// Where another task resumes.
    from: Revision,
    puts: bool,
}

impl fmt::Debug for Watches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watches").field("live", &self.live.len()).finish_non_exhaustive()
    }
}

impl Watches {
    pub(crate) fn new(
        client: Client,
        clock: Arc<dyn Clock>,
        runtime: Handle,
        submit: Submit,
    ) -> Self {
        Self {
            client,
            clock,
            runtime,
            submit,
            incarnations: 0,
            live: HashMap::new(),
            task: None,
            pausing: false,
        }
    }

    /// Watches all keys below the prefix, from this revision on (not from the next one, rule P16): what is deleted, and if
    /// asked what is put. An id that is in use is replaced.
    pub(crate) fn add(&mut self, id: WatchId, prefix: Key, from: Revision, puts: bool) {
        self.incarnations += 1;
        let live = Live { incarnation: self.incarnations, prefix, from, puts };
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

    /// Removes a watch; no event of it reaches the core any more, not even one under way.
    pub(crate) fn remove(&mut self, id: WatchId) {
        if let Some(live) = self.live.remove(&id)
            && let Some(task) = &self.task
        {
            task.command(Command::Remove(live.incarnation));
        }
    }

    /// Takes an event of the task; answers what of it is for the core.
    pub(crate) fn take(&mut self, event: StreamEvent) -> Option<(WatchId, WatchEvent)> {
        match event {
            StreamEvent::Seen(id, incarnation, event) => {
                return self.is_live(id, incarnation, &event).then_some((id, event));
            }
            StreamEvent::Ended => self.ended(),
            StreamEvent::Resume => {
                self.pausing = false;
                if !self.live.is_empty() {
                    self.start();
                }
            }
        }
        None
    }

    /// Tells whether the event is of a live watch; if so, notes where the watch resumes.
    fn is_live(&mut self, id: WatchId, incarnation: Incarnation, event: &WatchEvent) -> bool {
        let Some(live) = self.live.get_mut(&id) else {
            return false;
        };
        if live.incarnation != incarnation {
            return false;
        }
        match event {
            WatchEvent::Compacted => {
                self.live.remove(&id);
            }
            WatchEvent::Changed(event) => live.from = live.from.max(revision(event)),
        }
        true
    }

    /// Starts a task for all watches.
    fn start(&mut self) {
        let (stream, task) =
            Stream::new(self.client.clone(), Arc::clone(&self.clock), Arc::clone(&self.submit));
        self.runtime.spawn(stream.run());
        for (id, live) in &self.live {
            task.command(live.addition(*id));
        }
        self.task = Some(task);
    }

    /// The task has ended by itself, which only a panic in it can cause. After a pause another one watches the same, because
    /// calls depend on it to get their locks.
    fn ended(&mut self) {
        self.task = None;
        self.pausing = true;
        let (clock, submit) = (Arc::clone(&self.clock), Arc::clone(&self.submit));
        self.runtime.spawn(async move {
            clock.sleep_until(clock.now() + AGAIN).await;
            submit(StreamEvent::Resume);
        });
    }
}

impl Live {
    fn addition(&self, id: WatchId) -> Command {
        Command::Add {
            id,
            incarnation: self.incarnation,
            prefix: self.prefix.clone(),
            from: self.from,
            puts: self.puts,
        }
    }
}

#[cfg(test)]
mod tests {
    use etcd_locked_core::Event;
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;
    use crate::clock::BootClock;
    #[cfg(feature = "embedded")]
    use crate::clock::{Moment, Sleep};
    use crate::values::config::Config;

    fn at(revision: i64) -> Revision {
        Revision::new(revision).unwrap()
    }

    #[tokio::test]
    async fn another_task_resumes_the_watches_of_one_that_ended() {
        let clock: Arc<dyn Clock> = Arc::new(BootClock);
        let client = Client::new(&Config::new(["http://127.0.0.1:1"]), clock.clone()).unwrap();
        let (submitting, mut submitted) = unbounded_channel();
        let submit: Submit = Arc::new(move |event| drop(submitting.send(event)));
        let mut watches = Watches::new(client.clone(), clock.clone(), Handle::current(), submit);
        let (stream, task) = Stream::new(client, clock, Arc::clone(&watches.submit));
        watches.task = Some(task);
        watches.add(1.into(), "locks/a/".into(), at(7), true);
        watches.add(2.into(), "locks/b/".into(), at(8), true);
        let deletion = Event::Delete { key: b"locks/a/x".to_vec(), revision: at(9) };
        let seen = StreamEvent::Seen(1.into(), 1, WatchEvent::Changed(deletion));
        assert!(matches!(watches.take(seen), Some((_, WatchEvent::Changed(_)))));
        drop(stream); // as a panic would
        let ended = submitted.recv().await.unwrap();
        assert!(matches!(ended, StreamEvent::Ended), "{ended:?}");
        assert!(watches.take(ended).is_none());
        assert!(watches.task.is_none());
        watches.add(3.into(), "locks/c/".into(), at(9), true);
        watches.remove(2.into());
        assert!(watches.task.is_none(), "at once");
        let again = submitted.recv().await.unwrap();
        assert!(matches!(again, StreamEvent::Resume), "{again:?}");
        assert!(watches.take(again).is_none());
        assert!(watches.task.is_some() && !watches.pausing);
        let mut resumed: Vec<_> = watches.live.iter().map(|(id, it)| (id.get(), it.from)).collect();
        resumed.sort_unstable();
        assert_eq!(resumed, [(1, at(9)), (3, at(9))]);
    }

    /// Boot time, twenty times as fast.
    #[cfg(feature = "embedded")]
    #[derive(Debug)]
    struct FastClock(Moment);

    #[cfg(feature = "embedded")]
    impl Clock for FastClock {
        fn now(&self) -> Moment {
            self.0 + (BootClock.now() - self.0) * 20
        }

        fn sleep_until(&self, when: Moment) -> Sleep {
            BootClock.sleep_until(BootClock.now() + (when - self.now()) / 20)
        }
    }

    /// A connection in the process has no pings, and no core reads here: only the stream itself can find out.
    #[cfg(feature = "embedded")]
    #[tokio::test]
    async fn watches_of_a_silent_stream_resume_on_another() {
        use std::sync::Mutex;

        use crate::values::config::Connector;

        let etcd = etcd_locked_embedded::Etcd::new();
        let links = Arc::new(Mutex::new(Vec::new()));
        let (connected, made) = (etcd.clone(), Arc::clone(&links));
        let connector = Connector::new("a new connection", move |options| {
            let link = connected.link();
            made.lock().unwrap().push(link.clone());
            async move { link.client(Some(options)).await }
        });
        let clock: Arc<dyn Clock> = Arc::new(FastClock(BootClock.now()));
        let client = Client::new(&Config::by(connector), clock.clone()).unwrap();
        let (submitting, mut submitted) = unbounded_channel();
        let submit: Submit = Arc::new(move |event| drop(submitting.send(event)));
        let mut watches = Watches::new(client, clock, Handle::current(), submit);
        watches.add(1.into(), "locks/a/".into(), at(1), true);

        let mut operator = etcd.client().await;
        operator.put("locks/a/1", "", None).await.unwrap();
        let seen = watches.take(submitted.recv().await.unwrap());
        assert!(matches!(seen, Some((_, WatchEvent::Changed(Event::Put(_))))));

        let first = links.lock().unwrap().clone();
        first.iter().for_each(etcd_locked_embedded::Link::cut);
        operator.delete("locks/a/1", None).await.unwrap();
        // The put may come again: the watch resumes at the revision that it has seen last.
        loop {
            let event = tokio::time::timeout(Duration::from_secs(60), submitted.recv());
            let event = event.await.expect("the watches stay silent").unwrap();
            if let Some((_, WatchEvent::Changed(Event::Delete { .. }))) = watches.take(event) {
                break;
            }
        }
        assert!(links.lock().unwrap().len() > first.len());
    }
}
