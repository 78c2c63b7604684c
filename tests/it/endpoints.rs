//! Several endpoints: calls continue while one of them is dead, frozen or removed.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use etcd_locked::Locks;
use etcd_locked_devkit::{Direction, Proxy};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::authority::{Authority, ClientFiles};
use crate::corner::{Corner, connect, pass, take};
use crate::etcd::{Cluster, Etcd, free_port};
use crate::limit::{self, within, within_time};
use crate::real_only::{real_etcd_only, say_left_out};
use crate::worker::Worker;

/// Time limit for bodies that work longer than those of other tests.
const LONG: Duration = Duration::from_secs(60);

async fn calls(locks: &Locks, count: u32) {
    for number in 0..count {
        pass("the next lock", locks.lock(format!("orders/{}", number % 10))).await;
    }
}

#[limit::test]
async fn a_users_client_survives_the_loss_of_its_endpoint() {
    let etcd = Etcd::shared().await;
    let corner = Corner::new().await;
    let mut proxies = [(); 2].map(|()| Proxy::start(etcd.address()).unwrap());
    // The third one is dead from the start.
    let dead = format!("http://127.0.0.1:{}", free_port());
    let endpoints = [dead, proxies[0].endpoint(), proxies[1].endpoint()];
    let locks = connect(corner.config_via(endpoints)).await;
    let mut client = locks.client().await.unwrap();
    client.get("nothing", None).await.unwrap();
    // One after the other, because either may be the one in use.
    for proxy in &mut proxies {
        proxy.refuse();
        proxy.reset_all();
        let recovers = async {
            while client.get("nothing", None).await.is_err() {
                sleep(Duration::from_millis(20)).await; // not in a busy loop
            }
        };
        within("the other endpoint", recovers).await;
        for number in 0..20 {
            let got = client.get("nothing", None).await;
            got.unwrap_or_else(|error| panic!("call {number} failed: {error}"));
        }
        proxy.accept_again().unwrap();
    }
}

#[limit::test]
async fn a_frozen_endpoint_costs_time_and_no_lock() {
    let etcd = Etcd::shared().await;
    let corner = Corner::new().await;
    let proxies = [Proxy::start(etcd.address()).unwrap(), Proxy::start(etcd.address()).unwrap()];
    let endpoints = [proxies[0].endpoint(), proxies[1].endpoint(), etcd.endpoint()];
    // Already frozen when the engine connects; no call waits for that.
    proxies[0].freeze(Direction::Requests);
    let locks = connect(corner.config_via(endpoints).ttl(Duration::from_secs(10))).await;
    calls(&locks, 5).await;
    proxies[0].thaw();
    let held = take("a free name", locks.lock("reports/today")).await;
    let kept = held.hold(async {
        // One after the other, because either may be the one in use.
        for proxy in &proxies {
            proxy.freeze(Direction::Requests);
            calls(&locks, 10).await;
            // The body works until after a renewal on the frozen connection.
            sleep(Duration::from_millis(4500)).await;
            proxy.thaw();
        }
    });
    within_time(LONG, "the body's end", kept).await.unwrap();
    assert!(held.is_held());
    held.release().await.unwrap();
    corner.until_empty().await;
}

/// Acquires a lock through a proxy that delays everything from the start. Its body lasts for this long after the fault.
async fn outlives(ttl: Duration, delay: Duration, body: Duration, fault: impl FnOnce(&Proxy)) {
    let (corner, proxy) = Corner::with_proxy().await;
    proxy.delay(delay);
    let locks = connect(corner.config_via([proxy.endpoint()]).ttl(ttl)).await;
    calls(&locks, 2).await;
    let held = take("a free name", locks.lock("reports/today")).await;
    let kept = held.hold(async {
        fault(&proxy);
        // The body works past the end of the lease that it began with.
        sleep(body).await;
    });
    within("the body's end", kept).await.expect("no loss");
    assert!(held.is_held());
    proxy.delay(Duration::ZERO);
    proxy.thaw();
    held.release().await.expect("released");
    corner.until_empty().await;
}

/// A new connection takes several slow round trips.
#[limit::test]
async fn a_slow_network_reconnects_within_a_short_ttl() {
    let ttl = Duration::from_secs(6);
    outlives(ttl, Duration::from_millis(190), ttl * 3 / 2, Proxy::reset_all).await;
}

/// The first renewal goes over the connection that was used before, because there is no stream yet.
#[limit::test]
async fn half_open_connection_costs_no_lock_of_a_short_ttl() {
    let ttl = Duration::from_secs(3);
    outlives(ttl, Duration::ZERO, ttl * 2, |proxy| {
        proxy.freeze_existing(Direction::Requests);
        proxy.freeze_existing(Direction::Answers);
    })
    .await;
}

/// In a separate mount namespace, the process finds the addresses of `etcd.example` in a file. Certificates contain the name, not the
/// addresses, and are checked against it.
#[limit::test]
async fn each_address_of_a_name_is_an_endpoint() {
    real_etcd_only!("an embedded etcd has no certificates");
    if !Command::new("unshare").args(["-rm", "true"]).status().is_ok_and(|it| it.success()) {
        return say_left_out("this system permits no mount namespace");
    }
    let authority = Authority::new();
    let etcd = Etcd::start_with_client_certificates(&authority).await;
    let files = ClientFiles::of(&authority, &authority.issue("client"));
    let (directory, port) = (TempDir::new().expect("a temporary directory"), free_port());
    let hosts = directory.path().join("hosts");
    let lead_to = |hosts_of_it: &[u8]| {
        let lines = hosts_of_it.iter().map(|host| format!("127.0.0.{host} etcd.example\n"));
        fs::write(&hosts, String::from_iter(lines)).expect("the addresses");
    };
    let proxy = |host| Proxy::start_at(([127, 0, 0, host], port).into(), etcd.address());
    let [first, second, third] = [2, 3, 4].map(|host| proxy(host).expect("a proxy"));
    lead_to(&[2, 3]);
    first.freeze(Direction::Requests);
    let mut command = Command::new("unshare");
    command
        .args(["-rm", "sh", "-c", "mount --bind \"$0\" /etc/hosts && exec \"$1\""])
        .args([hosts.as_os_str(), env!("CARGO_BIN_EXE_worker").as_ref()])
        .env("ETCD_LOCKED_ENDPOINTS", format!("https://etcd.example:{port}"))
        .env("ETCD_LOCKED_TTL", "5s")
        .env("WORKER_LOGS", "info")
        .envs(files.environment());
    let mut worker = Worker::of(command);
    let logged = worker.asked("work till", "logged").await;
    for host in [2, 3] {
        let endpoint = format!("https://etcd.example:{port} (127.0.0.{host})");
        assert!(logged.contains(&endpoint), "{logged}");
    }
    worker.says("held").await;
    // Longer than the lease.
    for (frozen, other) in [(&second, &first), (&first, &second)] {
        frozen.freeze(Direction::Requests);
        other.thaw();
        sleep(Duration::from_secs(6)).await;
        worker.asked("lock orders/7", "locked").await;
    }
    lead_to(&[4]);
    second.freeze(Direction::Requests);
    second.reset_all();
    worker.asked("lock orders/8", "locked").await;
    assert!(third.open() > 0, "the addresses are not looked up again");
    worker.asked("done till", "released").await;
}

#[limit::test]
async fn calls_go_to_the_leader_and_to_the_next_one() {
    real_etcd_only!("there is one embedded etcd");
    let cluster = Cluster::start(3).await;
    let corner = Corner::of(&cluster.members[0]).await;
    let proxies = [0, 1, 2].map(|at| Proxy::start(cluster.members[at].address()).unwrap());
    let locks = connect(corner.config_via(proxies.each_ref().map(Proxy::endpoint))).await;
    let held = take("a free name", locks.lock("reports/today")).await;
    for leader in [cluster.leader(), (cluster.leader() + 1) % 3] {
        cluster.lead(leader);
        // The engine asks about every 15 s who leads.
        within_time(LONG, "connections to the leader only", async {
            while (0..3).any(|at| (proxies[at].open() > 0) != (at == leader)) {
                sleep(Duration::from_millis(20)).await; // not in a busy loop
            }
        })
        .await;
        calls(&locks, 20).await;
    }
    within("a release", held.release()).await.unwrap();
    corner.until_empty().await;
}

#[limit::test]
async fn a_dead_member_of_a_cluster_is_not_noticed() {
    real_etcd_only!("there is one embedded etcd");
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader();
    let follower = (leader + 1) % 3;
    let alive = (leader + 2) % 3;
    let corner = Corner::of(&cluster.members[alive]).await;
    let endpoints: [String; 3] = cluster.endpoints().try_into().unwrap();
    let locks = connect(corner.config_via(endpoints).ttl(Duration::from_secs(10))).await;
    let held = take("a free name", locks.lock("reports/today")).await;
    let kept = held.hold(async {
        calls(&locks, 20).await;
        cluster.members[follower].kill();
        calls(&locks, 200).await;
        // The follower comes back, so that the leader may die next.
        cluster.members[follower].start_again().await;
        let killed = Instant::now();
        cluster.members[leader].kill();
        // Without a leader a call may fail as retryable; with a leader, none fails.
        let elected = async {
            while let Err(error) = locks.lock("orders/7").await {
                assert!(error.is_retryable(), "{error:?}");
                sleep(Duration::from_millis(20)).await; // not in a busy loop
            }
        };
        within("a lock under the new leader", elected).await;
        calls(&locks, 20).await;
        // The body works past the TTL, so renewals must have arrived too.
        sleep(Duration::from_secs(11).saturating_sub(killed.elapsed())).await;
    });
    within_time(LONG, "the body's end", kept).await.unwrap();
    assert!(held.is_held());
    held.release().await.unwrap();
    corner.until_empty().await;
}
