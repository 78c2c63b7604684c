//! Watches of one engine, as the engine adds and removes them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use etcd_locked_core::{Event, Key, Revision, WatchId};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::stream::{Seen, Stream, Submit};
use super::table::{Command, Incarnation};
use crate::clock::Clock;
use crate::transport::client::Client;

/// The engine's watches. A task of its own talks to etcd, so nothing here waits for it.
pub(crate) struct Watches {
    incarnations: Incarnation,
    live: HashMap<WatchId, Incarnation>,
    /// Ends the task when it is dropped.
    commands: UnboundedSender<Command>,
}

impl fmt::Debug for Watches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watches").field("live", &self.live.len()).finish_non_exhaustive()
    }
}

impl Watches {
    /// Starts the task on this runtime.
    pub(crate) fn new(
        client: Arc<Client>,
        clock: Arc<dyn Clock>,
        runtime: &Handle,
        submit: Submit,
    ) -> Self {
        let (commands, commanded) = unbounded_channel();
        runtime.spawn(Stream::new(client, clock, commanded, submit).run());
        Self { incarnations: 0, live: HashMap::new(), commands }
    }

    /// Watches all keys below the prefix, from this revision on (not from the next one, rule P16): what is deleted, and if
    /// asked what is put. An id that is in use is replaced.
    pub(crate) fn add(&mut self, id: WatchId, prefix: Key, from: Revision, puts: bool) {
        self.remove(id);
        self.incarnations += 1;
        let incarnation = self.incarnations;
        self.live.insert(id, incarnation);
        self.command(Command::Add { id, incarnation, prefix, from, puts });
    }

    /// Removes a watch; no event of it reaches the core any more, not even one under way.
    pub(crate) fn remove(&mut self, id: WatchId) {
        if let Some(incarnation) = self.live.remove(&id) {
            self.command(Command::Remove(incarnation));
        }
    }

    /// Takes an event of the task; returns what of it is for the core.
    pub(crate) fn take(&mut self, seen: Seen) -> Option<(WatchId, Option<Event>)> {
        let Seen { id, incarnation, event } = seen;
        if self.live.get(&id) != Some(&incarnation) {
            return None;
        }
        if event.is_none() {
            self.live.remove(&id);
        }
        Some((id, event))
    }

    fn command(&self, command: Command) {
        let _ = self.commands.send(command); // refused only once the runtime has gone
    }
}

#[cfg(feature = "embedded")]
#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use etcd_locked_embedded::{Etcd, Link};
    use tokio::sync::mpsc::UnboundedReceiver;

    use super::*;
    use crate::clock::{BootClock, Moment, Sleep};
    use crate::values::config::{Config, Connector};

    /// Boot time, twenty times as fast.
    #[derive(Debug)]
    struct FastClock(Moment);

    impl Clock for FastClock {
        fn now(&self) -> Moment {
            self.0 + (BootClock.now() - self.0) * 20
        }

        fn sleep_until(&self, when: Moment) -> Sleep {
            BootClock.sleep_until(BootClock.now() + (when - self.now()) / 20)
        }
    }

    /// Watches of `locks/a/`, with all connections that are made for them.
    struct Watching {
        etcd: Etcd,
        links: Arc<Mutex<Vec<Link>>>,
        watches: Watches,
        seen: UnboundedReceiver<Seen>,
    }

    impl Watching {
        /// `each` is called for each event, before it is submitted.
        fn begin(each: impl Fn() + Send + Sync + 'static) -> Self {
            let (etcd, links) = (Etcd::new(), Arc::<Mutex<Vec<Link>>>::default());
            let (connected, made) = (etcd.clone(), Arc::clone(&links));
            let connector = Connector::new("a new connection", move |options| {
                let link = connected.link();
                made.lock().unwrap().push(link.clone());
                async move { link.client(Some(options)).await }
            });
            let clock: Arc<dyn Clock> = Arc::new(FastClock(BootClock.now()));
            let client = Client::new(&Config::by(connector), clock.clone()).unwrap();
            let (sender, seen) = unbounded_channel();
            let submit: Submit = Arc::new(move |event| {
                each();
                drop(sender.send(event));
            });
            let mut watches = Watches::new(client, clock, &Handle::current(), submit);
            watches.add(1.into(), "locks/a/".into(), Revision::new(1).unwrap(), true);
            Self { etcd, links, watches, seen }
        }

        async fn next(&mut self) -> Event {
            let event = tokio::time::timeout(Duration::from_secs(60), self.seen.recv());
            match self.watches.take(event.await.expect("the watches stay silent").unwrap()) {
                Some((_, Some(event))) => event,
                other => panic!("{other:?}"),
            }
        }
    }

    #[tokio::test]
    async fn watches_resume_after_a_panic() {
        let panicked = Mutex::new(false);
        let mut watching = Watching::begin(move || {
            let before = std::mem::replace(&mut *panicked.lock().unwrap(), true);
            assert!(before, "on purpose");
        });
        watching.etcd.client().await.put("locks/a/1", "", None).await.unwrap();
        assert!(matches!(watching.next().await, Event::Put(_)));
    }

    /// A connection in the process has no pings, and no core reads here: only the stream itself can find out.
    #[tokio::test]
    async fn watches_of_a_silent_stream_resume_on_another() {
        let mut watching = Watching::begin(|| {});
        let mut operator = watching.etcd.client().await;
        operator.put("locks/a/1", "", None).await.unwrap();
        assert!(matches!(watching.next().await, Event::Put(_)));
        let first = watching.links.lock().unwrap().clone();
        first.iter().for_each(Link::cut);
        operator.delete("locks/a/1", None).await.unwrap();
        // The put may come again: the watch resumes at the revision that it has seen last.
        while !matches!(watching.next().await, Event::Delete { .. }) {}
        assert!(watching.links.lock().unwrap().len() > first.len());
    }
}
