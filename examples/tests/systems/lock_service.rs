//! Row S3, the server's lock service: threads and processes wait for longer than the TTL and keep their order. They share one
//! queue with `etcdctl lock` and the lock service.

use std::process::Command;
use std::time::Duration;

use etcd_client::{Client, LockOptions};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::etcd::{Etcd, etcdctl};
use crate::limit::{run, within};
use crate::stage::{Program, Stage};

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
        let mut foreign = Contender::service(&etcd).await;
        within("the lock", foreign.has()).await;
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

        foreign.release().await;
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

#[test]
fn etcdctl_and_the_lock_service_share_one_queue_with_us() {
    run(async {
        let etcd = Etcd::start().await;
        let mut queue: Vec<Contender> = Vec::new();
        for kind in "etcdctl ours service ours etcdctl service ours".split(' ') {
            queue.push(match kind {
                "etcdctl" => Contender::etcdctl(&etcd),
                "service" => Contender::service(&etcd).await,
                _ => Contender::ours(&etcd),
            });
            etcd.until_below("locks/mylock/", queue.len()).await;
        }
        for at in 0..queue.len() {
            within("its admission", queue[at].has()).await;
            // Time to catch a contender that does not wait.
            sleep(Duration::from_millis(300)).await;
            for (later, other) in queue.iter_mut().enumerate().skip(at + 1) {
                let has = timeout(Duration::ZERO, other.has()).await.is_ok();
                assert!(!has, "contender {later} has the lock while {at} has it");
            }
            queue[at].release().await;
        }
        assert_eq!(etcd.below("locks/").await, [], "nothing is left in etcd");
    });
}

/// A contender for `locks/mylock`.
enum Contender {
    /// The example, with one thread that works for two seconds.
    Ours(Stage, Program),
    Etcdctl(Stage, Program),
    Service(JoinHandle<Vec<u8>>, Box<Client>, Option<Vec<u8>>),
}

impl Contender {
    fn ours(etcd: &Etcd) -> Self {
        let stage = Stage::new(etcd.endpoints());
        let program = stage.start(EXAMPLE, &["1", "2"]);
        Self::Ours(stage, program)
    }

    fn etcdctl(etcd: &Etcd) -> Self {
        let mut command = Command::new(etcdctl());
        command.env_clear().env("ETCDCTL_API", "3").args([
            "--endpoints",
            &etcd.endpoints(),
            "lock",
            "locks/mylock",
        ]);
        let stage = Stage::new(etcd.endpoints());
        let program = stage.run(command);
        Self::Etcdctl(stage, program)
    }

    /// Starts a contender that waits in etcd itself, with a lease that outlives the test.
    async fn service(etcd: &Etcd) -> Self {
        let mut client = etcd.client().await;
        let lease = client.lease_grant(120, None).await.expect("a lease");
        let options = LockOptions::new().with_lease(lease.id());
        let mut waits = client.clone();
        let locked = tokio::spawn(async move {
            let locked = waits.lock("locks/mylock", Some(options)).await;
            locked.expect("the lock service locks").key().to_vec()
        });
        Self::Service(locked, Box::new(client), None)
    }

    /// Completes once the contender has the lock.
    async fn has(&mut self) {
        match self {
            Self::Ours(stage, _) => drop(stage.says("thread 1 has the lock").await),
            Self::Etcdctl(stage, _) => drop(stage.says("locks/mylock/").await),
            Self::Service(_, _, Some(_)) => {}
            Self::Service(locked, _, key) => *key = Some(locked.await.expect("it has ended")),
        }
    }

    async fn release(&mut self) {
        match self {
            Self::Ours(stage, program) => stage.ends_well(program).await,
            Self::Etcdctl(_, program) => program.terminate(),
            Self::Service(_, client, key) => {
                let key = key.take().expect("it has the lock");
                client.unlock(key).await.expect("the lock service unlocks");
            }
        }
    }
}
