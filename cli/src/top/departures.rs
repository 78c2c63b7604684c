//! Departures that `top` shows: keys that go, counted by a watch. Not all are hand-overs: etcd does not say whether a gone
//! key held its name, nor whether another waits.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use etcd_locked::etcd_client::{self, Client, EventType, WatchFilterType, WatchOptions};
use tokio::time::sleep;

/// How long to wait until a watch that has ended is begun again.
const PAUSE: Duration = Duration::from_secs(1);

/// How many keys of each name have gone since they were counted last; `None` while there is no watch.
#[derive(Debug, Clone, Default)]
pub(super) struct Departures(Arc<Mutex<Option<Counts>>>);

#[derive(Debug)]
struct Counts {
    names: HashMap<String, u32>,
    since: Instant,
}

/// How many keys of each name have gone, and in how many seconds.
#[derive(Debug)]
pub(super) struct Rates {
    names: HashMap<String, u32>,
    seconds: f64,
}

impl Rates {
    pub(super) fn of(&self, name: &str) -> f64 {
        let gone = self.names.get(name).copied().unwrap_or(0);
        f64::from(gone) / self.seconds
    }
}

impl Counts {
    fn begin() -> Self {
        Self { names: HashMap::new(), since: Instant::now() }
    }
}

impl Departures {
    fn lock(&self) -> MutexGuard<'_, Option<Counts>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self) {
        *self.lock() = Some(Counts::begin());
    }

    fn end(&self) {
        *self.lock() = None;
    }

    fn add(&self, name: &str) {
        if let Some(counts) = &mut *self.lock() {
            *counts.names.entry(name.to_owned()).or_default() += 1;
        }
    }

    /// Returns what was counted, and counts anew. `None`: there is no watch, so nothing is known.
    pub(super) fn take(&self) -> Option<Rates> {
        let counts = mem::replace(self.lock().as_mut()?, Counts::begin());
        let time = counts.since.elapsed().max(Duration::from_millis(1));
        Some(Rates { names: counts.names, seconds: time.as_secs_f64() })
    }
}

/// Counts the keys that go below `below`, for ever.
pub(super) async fn count(
    mut client: Client,
    prefix: String,
    below: String,
    departures: Departures,
) {
    loop {
        // Why it ended is of no use: the reads say what is wrong with etcd.
        let _ = watch(&mut client, &prefix, &below, &departures).await;
        departures.end();
        sleep(PAUSE).await;
    }
}

/// Counts as long as etcd tells of keys that go.
async fn watch(
    client: &mut Client,
    prefix: &str,
    below: &str,
    departures: &Departures,
) -> Result<(), etcd_client::Error> {
    let options = WatchOptions::new().with_prefix().with_filters([WatchFilterType::NoPut]);
    let mut events = client.watch([prefix, below].concat(), Some(options)).await?;
    while let Some(answer) = events.message().await? {
        if answer.canceled() {
            break;
        }
        if answer.created() {
            departures.begin();
        }
        let gone = answer.events().iter();
        let gone = gone.filter(|event| event.event_type() == EventType::Delete);
        for kv in gone.filter_map(|event| event.kv()) {
            let key = String::from_utf8_lossy(kv.key());
            let name = key.strip_prefix(prefix).and_then(|key| key.rsplit_once('/'));
            if let Some((name, _)) = name {
                departures.add(name);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_known_without_a_watch() {
        let departures = Departures::default();
        departures.add("orders/7");
        assert!(departures.take().is_none());
        departures.begin();
        let rates = departures.take().expect("a watch");
        assert!(rates.of("orders/7").abs() < f64::EPSILON);
        departures.end();
        assert!(departures.take().is_none());
    }

    #[test]
    fn each_key_is_counted_once() {
        let departures = Departures::default();
        departures.begin();
        (0..3).for_each(|_| departures.add("orders/7"));
        let rates = departures.take().expect("a watch");
        assert!(rates.of("orders/7") > 0.0 && rates.of("orders/8").abs() < f64::EPSILON);
        let rates = departures.take().expect("a watch");
        assert!(rates.of("orders/7").abs() < f64::EPSILON);
    }
}
