//! Row S4, Go's transaction lock: a second process is refused at once with the holder's name, and a renewal outlives the TTL.

use std::time::{Duration, Instant};

use tokio::time::sleep_until;

use crate::etcd::Etcd;
use crate::limit::run;
use crate::stage::Stage;

const EXAMPLE: &str = env!("CARGO_BIN_EXE_transaction-lock");

#[test]
fn a_second_process_is_refused_with_the_holders_name() {
    run(async {
        let etcd = Etcd::start().await;
        let stage = Stage::new(etcd.endpoints());
        let mut first = stage.start(EXAMPLE, &["20"]);
        let begun = stage.says("lock successfully").await.at;
        let kept = etcd.below("").await;

        let at_once = Instant::now();
        stage.ends_with(1, &mut stage.start(EXAMPLE, &[])).await;
        assert!(
            at_once.elapsed() < Duration::from_secs(10),
            "the second process is refused at once",
        );
        let holder = format!("process {}, in `transaction_lock::report`,", first.pid());
        let occupied = stage.says("lock occupied: `transaction-lock` on ").await;
        assert!(occupied.text.contains(&holder), "the holder is named");
        let left = etcd.below("").await;
        assert!(left == kept, "a refused process leaves no key behind");
        let leases = etcd.client().await.leases().await.expect("leases");
        assert!(leases.leases().len() == 1, "a refused process leaves no lease behind",);

        // Two TTLs of five seconds.
        sleep_until((begun + Duration::from_millis(10_100)).into()).await;
        stage.ends_with(1, &mut stage.start(EXAMPLE, &[])).await;
        assert!(etcd.below("").await == kept, "the lock is the same after two TTLs",);
        stage.ends_well(&mut first).await;
        stage.printed_in_order(&[
            "lock successfully",
            "lock occupied",
            "lock occupied",
            "the work is done",
        ]);
        assert!(etcd.is_empty().await, "nothing is left in etcd");

        // The lock is free.
        stage.ends_with(0, &mut stage.start(EXAMPLE, &["0"])).await;
    });
}
