//! Watches of one engine, as the engine adds and removes them.

use std::sync::Arc;

use etcd_locked_core::{Key, Revision, WatchId};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::stream::{Stream, Submit};
use super::table::Command;
use crate::clock::Clock;
use crate::transport::client::Client;

/// The engine's watches. A task of its own talks to etcd, so nothing here waits for it. It ends when this is dropped.
pub(crate) struct Watches(UnboundedSender<Command>);

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
        Self(commands)
    }

    /// Watches all keys below the prefix, from this revision on (not from the next one, rule P16): what is deleted, and if
    /// asked what is put. No id is used twice.
    pub(crate) fn add(&self, id: WatchId, prefix: Key, from: Revision, puts: bool) {
        self.command(Command::Add { id, prefix, from, puts });
    }

    /// Removes a watch. Events of it may be under way, and mean nothing to the core.
    pub(crate) fn remove(&self, id: WatchId) {
        self.command(Command::Remove(id));
    }

    fn command(&self, command: Command) {
        let _ = self.0.send(command); // refused only once the runtime has gone
    }
}

#[cfg(feature = "embedded")]
#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use etcd_locked_core::Event;
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
        _watches: Watches,
        seen: UnboundedReceiver<Option<Event>>,
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
            let submit: Submit = Arc::new(move |_, event| {
                each();
                drop(sender.send(event));
            });
            let watches = Watches::new(client, clock, &Handle::current(), submit);
            watches.add(1.into(), "locks/a/".into(), Revision::new(1).unwrap(), true);
            Self { etcd, links, _watches: watches, seen }
        }

        async fn next(&mut self) -> Event {
            let event = tokio::time::timeout(Duration::from_secs(60), self.seen.recv());
            let event = event.await.expect("the watches stay silent");
            event.flatten().expect("nothing is compacted")
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
