//! Watches of the engine, all on one etcd watch stream (rules P16, P17, P19).

mod stream;
mod table;

pub(crate) use self::stream::{Report, start};
pub(crate) use self::table::Command;

#[cfg(feature = "embedded")]
#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use etcd_locked_core::{Event, Revision, WatchId};
    use etcd_locked_embedded::{Etcd, Link};
    use tokio::runtime::Handle;
    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

    use super::*;
    use crate::clock::{BootClock, Clock, Moment, Sleep};
    use crate::transport::client::Client;
    use crate::values::{Config, Connector};

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

    type Links = Arc<Mutex<Vec<Link>>>;
    type Seen = (UnboundedSender<Command>, UnboundedReceiver<Option<Event>>);

    /// Watches `locks/a/`, and calls `each` for each event. Returns all connections that are opened for that, and the events.
    fn watch(etcd: &Etcd, each: impl Fn() + Send + Sync + 'static) -> (Links, Seen) {
        let links = Links::default();
        let (etcd, made) = (etcd.clone(), Arc::clone(&links));
        let connector = Connector::new("a new connection", move |options| {
            let link = etcd.link();
            made.lock().unwrap().push(link.clone());
            async move { link.client(Some(options)).await }
        });
        let clock: Arc<dyn Clock> = Arc::new(FastClock(BootClock.now()));
        let client = Client::new(&Config::by(connector), clock.clone()).unwrap();
        let (sender, seen) = unbounded_channel();
        let report: Report = Arc::new(move |_, event| {
            each();
            drop(sender.send(event));
        });
        let watches = start(client, clock, &Handle::current(), report);
        let (prefix, from) = ("locks/a/".into(), Revision::new(1));
        watches.send(Command::Add { id: WatchId(1), prefix, from, puts: true }).unwrap();
        (links, (watches, seen))
    }

    async fn next((_, seen): &mut Seen) -> Event {
        let event = tokio::time::timeout(Duration::from_secs(60), seen.recv());
        event.await.expect("the watches stay silent").flatten().expect("nothing is compacted")
    }

    #[tokio::test]
    async fn watches_resume_after_a_panic() {
        let (etcd, panicked) = (Etcd::new(), Mutex::new(false));
        let (_, mut seen) = watch(&etcd, move || {
            let before = std::mem::replace(&mut *panicked.lock().unwrap(), true);
            assert!(before, "on purpose");
        });
        etcd.client().await.put("locks/a/1", "", None).await.unwrap();
        assert!(matches!(next(&mut seen).await, Event::Put(_)));
    }

    /// An in-process connection sends no pings, and no core reads here, so only the stream itself can notice.
    #[tokio::test]
    async fn watches_of_a_silent_stream_resume_on_another() {
        let etcd = Etcd::new();
        let (links, mut seen) = watch(&etcd, || {});
        let mut operator = etcd.client().await;
        operator.put("locks/a/1", "", None).await.unwrap();
        assert!(matches!(next(&mut seen).await, Event::Put(_)));
        let first = links.lock().unwrap().clone();
        first.iter().for_each(Link::cut);
        operator.delete("locks/a/1", None).await.unwrap();
        // The put may come again: the watch resumes at the last revision that it has seen.
        while !matches!(next(&mut seen).await, Event::Delete { .. }) {}
        assert!(links.lock().unwrap().len() > first.len());
    }
}
