//! Row `leader`, the long holder: cut off from etcd, it stops before its lease expires, and so before there is another leader.

use std::time::{Duration, Instant};

use etcd_client::{EventType, WatchOptions};
use etcd_locked_devkit::{Direction, Proxy};
use tokio::time::sleep;

use crate::etcd::Etcd;
use crate::limit::{run, within};
use crate::stage::Stage;

const EXAMPLE: &str = env!("CARGO_BIN_EXE_leader");
const KEYS: &str = "locks/leaders/billing/";
/// TTL of the leader's lease.
const TTL: Duration = Duration::from_secs(5);

#[test]
fn a_leader_that_is_cut_off_stops_before_there_is_another() {
    run(async {
        let etcd = Etcd::start().await;
        let stage = Stage::new(etcd.endpoints());
        let link = Proxy::start(etcd.members[0].address()).unwrap();
        let through_link = [("ETCD_LOCKED_ENDPOINTS", &*link.endpoint())];
        let _a = stage.start_with(EXAMPLE, &["a"], &through_link);
        stage.says("a leads").await;
        let mut b = stage.start(EXAMPLE, &["b"]);
        etcd.until_below(KEYS, 2).await;
        sleep(TTL).await; // the leader leads for longer than its TTL

        let mut client = etcd.client().await;
        let deleted = WatchOptions::new().with_prefix();
        let mut events = client.watch(KEYS, Some(deleted)).await.expect("a watch");
        link.freeze(Direction::Requests);
        link.freeze(Direction::Answers);
        let cut = Instant::now();
        let stopped = stage.says("a has stopped").await;
        let expired = within("the end of the lease", async {
            loop {
                let message = events.message().await.expect("the watch");
                let message = message.expect("the watch goes on");
                if message.events().iter().any(|it| it.event_type() == EventType::Delete) {
                    return Instant::now();
                }
            }
        });
        let expired = expired.await;
        let successor = stage.says("b leads").await;
        println!(
            "cut off; stopped {:.2?} later, before the lease was over by {:.2?}; a successor {:.2?} after the cut",
            stopped.at - cut,
            expired - stopped.at,
            successor.at - cut
        );
        assert!(stopped.at < expired, "a has stopped before the lease is over",);
        assert!(stopped.at < successor.at, "a has stopped before b leads");
        // Nine tenths of the TTL are for work, counted from when the last renewal was sent. The stage may read a line late.
        assert!(
            stopped.at - cut < TTL * 9 / 10 + Duration::from_millis(250),
            "a stops within its stop time",
        );

        // The network is back: a stands by, and leads again when b ends.
        link.thaw();
        etcd.until_below(KEYS, 2).await;
        b.terminate();
        stage.ends_well(&mut b).await;
        within("a second term", async {
            while stage.count("a leads") < 2 {
                sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        stage.printed_in_order(&[
            "a leads",
            "b stands by",
            "a has stopped",
            "b leads",
            "b has stopped",
            "a leads",
        ]);
    });
}
