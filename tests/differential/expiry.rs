//! Leases that run out, and those that are kept.

use std::time::{Duration, Instant};

use etcd_client::{Client, EventType, LeaseGrantOptions, PutOptions, WatchOptions};
use etcd_locked_embedded::Etcd as Embedded;
use tokio::time::{sleep, timeout};

use crate::etcd::Etcd;

/// What happened, one line a message; and after how long the lease was gone.
async fn seen(mut client: Client) -> (Vec<String>, Duration) {
    let mut lines = Vec::new();
    for id in [1, 2] {
        let options = LeaseGrantOptions::new().with_id(id);
        let granted = client.lease_grant(2, Some(options)).await;
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
    // The second is kept until the first has gone, and a while longer.
    let mut renewals = async || -> ! {
        loop {
            keeper.keep_alive().await.expect("asked");
            let ttl = kept.message().await.expect("told").expect("one").ttl();
            assert_eq!(ttl, 2, "it is kept for its whole time to live");
            sleep(Duration::from_millis(300)).await;
        }
    };
    let mut next = async || loop {
        let message = watch.message().await.expect("told").expect("a message");
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
    let left = client.lease_time_to_live(1, None).await.expect("told");
    lines.push(format!("left of the first: {}", left.ttl()));
    let wait = Duration::from_secs(3);
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
fn leases_run_out() {
    let runtime = crate::random::runtime();
    let ((real, there), (embedded, here)) = runtime.block_on(async {
        let etcd = Etcd::start(&[]).await;
        tokio::join!(seen(etcd.client().await), async {
            seen(Embedded::new().client().await).await
        })
    });
    assert_eq!(real, embedded);
    // Not before its time; a real one looks twice a second.
    for gone in [there, here] {
        let range = Duration::from_millis(1_900)..Duration::from_secs(6);
        assert!(range.contains(&gone), "{gone:?}");
    }
}
