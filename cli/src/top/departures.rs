//! Departures that `top` shows: keys that go, counted by a watch. Not all are hand-overs: etcd does not say whether a gone
//! key held its name, nor whether another waits.

use std::cell::RefCell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::mem;
use std::time::{Duration, Instant};

use etcd_locked::etcd_client::{self, Client, EventType, WatchFilterType, WatchOptions};
use tokio::time::sleep;

use crate::output::Shown;

/// How long to wait until a watch that has ended is begun again.
const PAUSE: Duration = Duration::from_secs(1);

/// How many keys of each name have gone, and since when they are counted.
type Counts = (HashMap<String, u32>, Instant);

/// The counts of a watch; `None` while there is none.
pub(super) type Departures = RefCell<Option<Counts>>;

/// Returns how many keys left each name per second, and starts to count again. `None`: there is no watch, so nothing is known.
pub(super) fn rates(departures: &Departures) -> Option<HashMap<String, f64>> {
    let anew = (HashMap::new(), Instant::now());
    let (names, since) = mem::replace(departures.borrow_mut().as_mut()?, anew);
    let seconds = since.elapsed().max(Duration::from_millis(1)).as_secs_f64();
    let rates = names.into_iter().map(|(name, gone)| (name, f64::from(gone) / seconds));
    Some(rates.collect())
}

/// Counts the keys that go below `below`, for ever.
pub(super) async fn count(
    mut client: Client,
    prefix: &str,
    below: &str,
    departures: &Departures,
) -> Infallible {
    loop {
        // Why it ended is of no use: the reads say what is wrong with etcd.
        let _ = watch(&mut client, prefix, below, departures).await;
        *departures.borrow_mut() = None;
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
