//! S4, Go's transaction lock: refused at once, the holder named, nothing left behind; and renewal outlives the TTL.

use std::time::{Duration, Instant};

use tokio::time::sleep_until;

use crate::etcd::Etcd;
use crate::limit::run;
use crate::stage::Stage;

const EXAMPLE: &str = env!("CARGO_BIN_EXE_transaction-lock");

#[test]
fn who_comes_second_is_told_who_was_first() {
    run(async {
        let etcd = Etcd::start().await;
        let stage = Stage::new(etcd.endpoints());
        let mut first = stage.start(EXAMPLE, &["14"]);
        let begun = stage.says("lock successfully").await.at;
        let kept = etcd.below("").await;

        let at_once = Instant::now();
        stage.ends_with(1, &mut stage.start(EXAMPLE, &[])).await;
        assert!(
            at_once.elapsed() < Duration::from_secs(3),
            "no is said at once",
        );
        let holder = format!(
            "process {}, in `transaction_lock::report`, since",
            first.pid()
        );
        let occupied = stage.says("lock occupied: `transaction-lock` on ").await;
        assert!(occupied.text.contains(&holder), "the holder is named");
        let left = etcd.below("").await;
        assert!(left == kept, "who was refused leaves no key behind");
        let leases = etcd.client().await.leases().await.expect("leases");
        assert!(
            leases.leases().len() == 1,
            "who was refused leaves no lease behind",
        );

        // Five TTLs of two seconds.
        sleep_until((begun + Duration::from_millis(10_100)).into()).await;
        stage.ends_with(1, &mut stage.start(EXAMPLE, &[])).await;
        assert!(
            etcd.below("").await == kept,
            "it is the same lock after five TTLs",
        );
        stage.ends_well(&mut first).await;
        stage.said_in_order(&[
            "lock successfully",
            "lock occupied",
            "lock occupied",
            "the work is done",
        ]);
        assert!(etcd.is_empty().await, "nothing is left in etcd");

        // And it is free.
        stage.ends_with(0, &mut stage.start(EXAMPLE, &["0"])).await;
    });
}
