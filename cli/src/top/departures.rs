//! Departures that `top` shows: keys that are deleted, counted by a watch. Not all are hand-overs: etcd does not say whether
//! a deleted key held its name, or whether another key waits.

use std::cell::RefCell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::mem;
use std::time::{Duration, Instant};

use etcd_locked::etcd_client::{self, Client, EventType, WatchFilterType, WatchOptions};
use tokio::time::sleep;

use crate::output::Shown;

/// Pause before a watch that has ended is started again.
const PAUSE: Duration = Duration::from_secs(1);

/// Number of deleted keys of each name, and the start of the count.
type Counts = (HashMap<String, u32>, Instant);

/// Counts of a watch; `None` while there is no watch.
pub(super) type Departures = RefCell<Option<Counts>>;

/// Returns how many keys left each name per second, and restarts the count. Returns `None` without a watch.
pub(super) fn rates(departures: &Departures) -> Option<HashMap<String, f64>> {
    let anew = (HashMap::new(), Instant::now());
    let (names, since) = mem::replace(departures.borrow_mut().as_mut()?, anew);
    let seconds = since.elapsed().max(Duration::from_millis(1)).as_secs_f64();
    let rates = names.into_iter().map(|(name, gone)| (name, f64::from(gone) / seconds));
    Some(rates.collect())
}

/// Counts the keys deleted below `below`, forever.
pub(super) async fn count(
    mut client: Client,
    prefix: &str,
    below: &str,
    departures: &Departures,
) -> Infallible {
    loop {
        // The reason does not matter: the reads report what is wrong with etcd.
        let _ = watch(&mut client, prefix, below, departures).await;
        *departures.borrow_mut() = None;
        sleep(PAUSE).await;
    }
}

/// Counts as long as etcd reports deleted keys.
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
            *departures.borrow_mut() = Some((HashMap::new(), Instant::now()));
        }
        let gone = answer.events().iter();
        let gone = gone.filter(|event| event.event_type() == EventType::Delete);
        for kv in gone.filter_map(|event| event.kv()) {
            let key = String::from_utf8_lossy(kv.key());
            let name = key.strip_prefix(prefix).and_then(|key| key.rsplit_once('/'));
            if let (Some((name, _)), Some((counts, _))) = (name, &mut *departures.borrow_mut()) {
                *counts.entry(Shown(name).to_string()).or_default() += 1;
            }
        }
    }
    Ok(())
}
