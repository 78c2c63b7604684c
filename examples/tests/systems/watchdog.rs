//! Row S5, the asyncio lock with a watchdog: three tasks work longer than their TTL, one after another, in order.

use std::time::Duration;

use crate::etcd::Etcd;
use crate::limit::run;
use crate::stage::Stage;

#[test]
fn three_tasks_work_in_order_for_longer_than_the_ttl() {
    run(async {
        let etcd = Etcd::start().await;
        let stage = Stage::new(etcd.endpoints());
        let mut example = stage.start(env!("CARGO_BIN_EXE_watchdog"), &[]);
        stage.says("task 1 has the lock").await;
        let key = etcd.below("locks/watchdog/report/").await;
        let lease = key.first().expect("a key for the lock").lease;
        let ttl = etcd.client().await.lease_time_to_live(lease, None).await;
        assert!(ttl.expect("the lease").granted_ttl() == 5, "the TTL is five seconds",);

        stage.ends_well(&mut example).await;
        stage.printed_in_order(&[
            "task 1 has the lock",
            "task 1 is done",
            "task 2 has the lock",
            "task 2 is done",
            "task 3 has the lock",
            "task 3 is done",
        ]);
        for task in 1..=3 {
            let has = stage.says(&format!("task {task} has the lock")).await.at;
            let done = stage.says(&format!("task {task} is done")).await.at;
            let worked = done - has;
            // The stage may read a line late.
            assert!(worked > Duration::from_millis(5_500), "each works for six seconds",);
        }
        assert!(etcd.is_empty().await, "nothing is left in etcd");
    });
}
