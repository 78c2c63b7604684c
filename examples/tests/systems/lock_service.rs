//! Row S3, the server's lock service: threads and processes wait longer than the TTL and keep their order.

use std::time::Duration;

use etcd_client::LockOptions;
use tokio::time::sleep;

use crate::etcd::Etcd;
use crate::limit::run;
use crate::stage::Stage;

const EXAMPLE: &str = env!("CARGO_BIN_EXE_lock-service");

#[test]
fn five_threads_wait_for_longer_than_the_ttl() {
    run(async {
        let etcd = Etcd::start().await;
        let stage = Stage::new(etcd.endpoints());
        let ttl = [("ETCD_LOCKED_TTL", "5s")];
        let mut example = stage.start_with(EXAMPLE, &["5", "3"], &ttl);
        stage.says("thread 5 wants the lock").await;
        stage.ends_well(&mut example).await;
        let mut expected = Vec::new();
        for thread in 1..=5 {
            expected.push(format!("thread {thread} has the lock"));
            expected.push(format!("thread {thread} releases it"));
        }
        let expected: Vec<_> = expected.iter().map(String::as_str).collect();
        stage.printed_in_order(&expected);
        let waited = stage.says("5 has").await.at - stage.says("5 wants").await.at;
        assert!(waited > Duration::from_secs(10), "the last waits for two TTLs",);
        assert!(etcd.is_empty().await, "nothing is left in etcd");
    });
}

#[test]
fn processes_that_wait_longer_than_the_ttl_keep_their_order() {
    run(async {
        let etcd = Etcd::start().await;
        let mut foreign = etcd.client().await;
        let lease = foreign.lease_grant(120, None).await.expect("a lease").id();
        let options = LockOptions::new().with_lease(lease);
        let held = foreign.lock("locks/mylock", Some(options)).await.expect("the lock");
        let ttl = [("ETCD_LOCKED_TTL", "5s")];
        let mut processes = Vec::new();
        for before in 1..=2 {
            let stage = Stage::new(etcd.endpoints());
            let program = stage.start_with(EXAMPLE, &["1", "1"], &ttl);
            processes.push((stage, program));
            etcd.until_below("locks/mylock/", before + 1).await;
        }
        let before = etcd.below("locks/mylock/").await;
        sleep(Duration::from_secs(8)).await;
        let now = etcd.below("locks/mylock/").await;
        assert_eq!(now, before, "a waiter has another key or revision");

        foreign.unlock(held.key()).await.expect("the lock, given back");
        let mut held = Vec::new();
        for (stage, program) in &mut processes {
            stage.ends_well(program).await;
            let has = stage.says("thread 1 has the lock").await.at;
            held.push((has, stage.says("thread 1 releases it").await.at));
        }
        // The stage of the first process may read its line a moment later than that of the second.
        let in_order = held[1].0 + Duration::from_secs(1) >= held[0].1;
        assert!(in_order, "the first process has the lock first");
        assert_eq!(etcd.below("locks/").await, [], "nothing is left in etcd");
    });
}
