//! Expiry of leases, compared: both etcds delete the keys of an expired lease, and keep those of a renewed one.

use std::time::{Duration, Instant};

use etcd_client::{Client, EventType, LeaseGrantOptions, PutOptions, WatchOptions};
use etcd_locked_embedded::Etcd as Embedded;
use tokio::time::{sleep, timeout};

use crate::random;

/// Plays the scenario. Returns what the client saw, one line per message, and the time after which the lease was gone.
async fn seen(mut client: Client) -> (Vec<String>, Duration) {
    let mut lines = Vec::new();
    for id in [1, 2] {
        let options = LeaseGrantOptions::new().with_id(id);
        let granted = client.lease_grant(5, Some(options)).await;
        lines.push(format!("granted {}", granted.expect("a lease").ttl()));
    }
    let from = Instant::now();
    for (key, lease) in [("b", 1), ("a", 1), ("c", 2)] {
        let options = PutOptions::new().with_lease(lease);
        client.put(key, "", Some(options)).await.expect("a key");
    }
    let options = WatchOptions::new().with_all_keys().with_prev_key();
    let mut watch = client.watch("", Some(options)).await.expect("a watch");
    let (mut keeper, mut kept) = client.lease_keep_alive(2).await.expect("kept");
    // The second lease is renewed until the first has expired, and six seconds longer.
    let mut renewals = async || -> ! {
        loop {
            keeper.keep_alive().await.expect("asked");
            let answer = kept.message().await.expect("an answer");
            assert_eq!(answer.expect("a message").ttl(), 5, "the whole TTL again");
            sleep(Duration::from_millis(300)).await;
        }
    };
    let mut next = async || loop {
        let message = watch.message().await.expect("events").expect("a message");
        if message.created() {
            continue;
        }
        let events = message.events().iter().map(|event| {
            assert_eq!(event.event_type(), EventType::Delete);
            let (kv, prev) = (event.kv().expect("a key"), event.prev_kv());
            let before = prev.map_or(0, |it| it.lease());
            let key = String::from_utf8_lossy(kv.key()).into_owned();
            format!("{key}@{} of {before}", kv.mod_revision())
        });
        return events.collect::<Vec<_>>().join(", ");
    };
    tokio::select! {
        message = next() => lines.push(message),
        never = renewals() => never,
    }
    let gone = from.elapsed();
    let left = client.lease_time_to_live(1, None).await.expect("answered");
    lines.push(format!("left of the first: {}", left.ttl()));
    let wait = Duration::from_secs(6);
    let _ = timeout(wait, renewals()).await;
    let list = client.leases().await.expect("listed");
    let ids: Vec<_> = list.leases().iter().map(|it| it.id()).collect();
    lines.push(format!("{wait:?} later there are {ids:?}"));
    lines.push(next().await);
    let revision = client.get("a", None).await.expect("read");
    let revision = revision.header().map_or(0, |it| it.revision());
    lines.push(format!("at last @{revision}"));
    (lines, gone)
}

#[test]
fn leases_expire_alike() {
    let runtime = random::runtime();
    let ((real, there), (embedded, here)) = runtime.block_on(async {
        let etcd = random::start().await;
        tokio::join!(seen(random::client(&etcd).await), async {
            seen(Embedded::new().client().await).await
        })
    });
    assert_eq!(real, embedded);
    // Not before its time; a real etcd checks its leases twice a second.
    for gone in [there, here] {
        let range = Duration::from_millis(4_900)..Duration::from_secs(15);
        assert!(range.contains(&gone), "{gone:?}");
    }
}
