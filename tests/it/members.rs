//! Cluster members that change while locks are held and waited for.

use std::time::Duration;

use etcd_locked_devkit::{Direction, Proxy};
use etcd_locked_tests::Witness;
use tempfile::TempDir;
use tokio::time::{Instant, sleep, sleep_until};

use crate::corner::{Corner, connect, pass, take};
use crate::etcd::Cluster;
use crate::limit::{self, within, within_time};
use crate::real_only::real_etcd_only;
use crate::worker::Worker;

/// Longer than the time between two reads of the member list, and an election.
const FOLLOWED: Duration = Duration::from_secs(40);

/// Awaits that a process uses this endpoint; no call of it may fail meanwhile.
async fn follows(worker: &mut Worker, endpoint: &str) {
    loop {
        let logged = worker.says_within(FOLLOWED, "logged").await;
        if logged.contains("endpoints have changed") && logged.contains(endpoint) {
            return;
        }
    }
}

#[limit::test]
async fn all_members_may_be_replaced() {
    real_etcd_only!("embedded members share one store");
    let mut cluster = Cluster::start_replaceable(3).await;
    let environment = vec![
        ("ETCD_LOCKED_ENDPOINTS", cluster.endpoints().join(",")),
        ("ETCD_LOCKED_FOLLOW_MEMBERS", "true".to_owned()),
        ("WORKER_LOGS", "info".to_owned()),
    ];
    let directory = TempDir::new().unwrap();
    let tally = format!("tally till {}", directory.path().display());
    let desk = TempDir::new().unwrap();
    let visit = format!("churn desk 1 {}", desk.path().display());
    let mut workers = [Worker::start(environment.clone()), Worker::start(environment)];
    let [holder, waiter] = &mut workers;
    holder.asked("work held", "held").await;
    waiter.send("work held");
    for worker in [holder, waiter] {
        worker.send(&tally);
    }
    for at in 0..3 {
        cluster.replace(at).await;
        let new = cluster.members[at].endpoint();
        for worker in &mut workers {
            follows(worker, &new).await;
            // An operator replaces the next member once calls are served again.
            worker.asked(&visit, "churned").await;
        }
    }
    // None of the configured endpoints is left, and no call has failed.
    let [holder, waiter] = &mut workers;
    holder.asked("done held", "released").await;
    waiter.says("held").await;
    let mut visits = 0;
    for worker in &mut workers {
        let tallied = worker.asked("done till", "tallied").await;
        let count = tallied.strip_prefix("till ").unwrap();
        visits += count.parse::<u64>().unwrap_or_else(|_| panic!("a call failed: {tallied}"));
    }
    assert_eq!(Witness::new(directory.path()).count().unwrap(), visits);
}

/// The member serves what it can without the others: its status, and reads that may be stale.
#[limit::test]
async fn a_member_that_lags_is_passed_over() {
    real_etcd_only!("embedded members share one store");
    const TTL: Duration = Duration::from_secs(10);
    let cluster = Cluster::start_separable(3).await;
    let lags = (cluster.leader() + 1) % 3;
    let up_to_date = &cluster.members[(lags + 1) % 3];
    let corner = Corner::of(up_to_date).await;
    let proxies: Vec<_> = cluster
        .members
        .iter()
        .map(|member| Proxy::start(member.address()).expect("a proxy"))
        .collect();
    let endpoints: Vec<_> = proxies.iter().map(Proxy::endpoint).collect();
    let endpoints: [String; 3] = endpoints.try_into().expect("three");
    let config = || corner.config_via(endpoints.clone()).ttl(TTL);

    // The other members refuse, so the engine begins at the member that will lag.
    let others = || proxies.iter().enumerate().filter(|(at, _)| *at != lags);
    others().for_each(|(_, proxy)| proxy.refuse());
    let locks = connect(config()).await;
    others().for_each(|(_, proxy)| proxy.accept_again().expect("its port"));
    let held = take("a free name", locks.lock("reports/today")).await;
    assert!(proxies[lags].open() > 0, "the member is not in use");

    cluster.isolate(lags);
    let isolated = Instant::now();
    let mut served = 0;
    for number in 0..50 {
        let call = locks.lock(format!("orders/{}", number % 5));
        let result = match within("a call", call).await {
            Ok(held) => within("a release", held.release()).await,
            Err(error) => Err(error),
        };
        match result {
            Ok(()) => served += 1,
            // The error of an exchange to which the member did not respond.
            Err(error) => assert!(error.is_retryable(), "{error:?}"),
        }
    }
    assert!(served >= 48, "it is not passed over: {served} of 50");
    let new = connect(config()).await;
    pass("a call of a new process", new.lock("orders/7")).await;
    // Past the TTL, so renewals have arrived too.
    sleep_until(isolated + TTL + Duration::from_secs(2)).await;
    assert!(held.is_held(), "renewals do not pass it over");
    within("a release", held.release()).await.expect("a release while it lags");
    cluster.heal();
    corner.until_empty().await;
}

/// Each new connection leads to another member, as behind a load balancer. No call or renewal is in progress.
#[limit::test]
async fn idle_process_leaves_a_member_without_leader_and_a_frozen_one() {
    real_etcd_only!("embedded members share one store");
    let cluster = Cluster::start_separable(3).await;
    let lonely = (cluster.leader() + 1) % 3;
    let other = &cluster.members[(lonely + 1) % 3];
    let proxy = Proxy::start(cluster.members[lonely].address()).expect("a proxy");
    let config = Corner::of(other).await.config_via([proxy.endpoint()]);
    let locks = connect(config.ttl(Duration::from_secs(60))).await;
    pass("a call", locks.lock("orders/7")).await;
    let has_left = async |what| {
        let (before, begun) = (proxy.connections(), Instant::now());
        // A busy machine may be late.
        within_time(Duration::from_secs(12), what, async {
            while proxy.connections() == before {
                sleep(Duration::from_millis(20)).await; // not in a busy loop
            }
        })
        .await;
        println!("{what}: another connection after {:.1?}", begun.elapsed());
    };
    proxy.lead_to(other.address());
    cluster.isolate(lonely);
    has_left("a member without leader").await;
    pass("a call by the same address", locks.lock("orders/7")).await;
    proxy.freeze_existing(Direction::Answers);
    has_left("a frozen member").await;
    pass("a call by the same address", locks.lock("orders/7")).await;
}

/// Leases start again at the next leader (rule P31), so the holder's may last for two TTLs.
#[limit::test]
async fn holder_that_dies_with_the_leader_is_followed_in_two_ttls() {
    real_etcd_only!("embedded members share one store");
    const LATEST: Duration = Duration::from_secs(2 * 5 + 3);
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader();
    let corner = Corner::of(&cluster.members[(leader + 1) % 3]).await;
    let environment = [
        ("ETCD_LOCKED_ENDPOINTS", cluster.endpoints().join(",")),
        ("ETCD_LOCKED_PREFIX", corner.prefix.clone()),
    ];
    let mut holder = Worker::start(environment.clone());
    let mut next = Worker::start(environment);
    holder.asked("work-five till", "held").await;
    next.send("work till");
    corner.until_contenders("jobs/till", 2).await;

    holder.kill();
    cluster.members[leader].kill();
    let killed = Instant::now();
    within_time(LATEST, "the next holder", next.says("held")).await;
    assert!(killed.elapsed() >= Duration::from_secs(1), "the holder did not have the lock");
    next.asked("done till", "released").await;
    corner.until_empty().await;
}
