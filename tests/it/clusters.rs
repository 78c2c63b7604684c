//! Two clusters behind one configuration: their locks do not exclude each other, so no call gets a lock.

use std::time::Duration;

use etcd_client::Client;
use etcd_locked_devkit::{Direction, Proxy};
use etcd_locked_tests::Witness;
use tempfile::TempDir;
use tokio::time::interval;

use crate::etcd::{Etcd, free_port};
use crate::limit::{self, within};
use crate::real_only::real_etcd_only;
use crate::shop::Shop;
use crate::worker::Worker;

/// Longer than the pause after which a process tries a silent endpoint again.
const ASKED_AGAIN: Duration = Duration::from_secs(40);

/// Starts a process whose locks last long without etcd, so that only a refusal ends it.
fn process(endpoints: &[&str], user: Option<&'static str>) -> Worker {
    let environment = [
        ("ETCD_LOCKED_ENDPOINTS", endpoints.join(",")),
        ("ETCD_LOCKED_TTL", "60s".to_owned()),
        ("WORKER_LOGS", "error".to_owned()),
    ];
    let user = user.map(|user| ("ETCD_LOCKED_USER", user.to_owned()));
    Worker::start(environment.into_iter().chain(user))
}

/// Starts two clusters, and returns their ids too.
async fn two() -> ([Etcd; 2], [String; 2]) {
    let etcds = [Etcd::start().await, Etcd::start().await];
    let ids = [id(etcds[0].client().await).await, id(etcds[1].client().await).await];
    (etcds, ids)
}

/// Returns the cluster's id, as `etcdctl` prints it.
async fn id(mut client: Client) -> String {
    let status = client.status().await.expect("a status");
    format!("{:x}", status.header().expect("a header").cluster_id())
}

/// Checks that processes with endpoints of these two clusters enter no body, in either order of the endpoints.
async fn none_enters([one, two]: [&str; 2], ids: &[String; 2], user: Option<&'static str>) {
    let dead = format!("http://127.0.0.1:{}", free_port());
    let directory = TempDir::new().expect("a temporary directory");
    let tally = format!("tally till {}", directory.path().display());
    let orders: [&[&str]; 4] = [&[one, two], &[two, one], &[one, &dead, two], &[two, &dead, one]];
    let mut processes = orders.map(|order| process(order, user));
    processes.iter_mut().for_each(|process| process.send(&tally));
    for process in &mut processes {
        assert_eq!(refused(process, ids).await, 0);
    }
    assert_eq!(Witness::new(directory.path()).count().expect("readable"), 0);
}

/// Awaits that a process has stopped counting for two clusters; returns its visits.
async fn refused(process: &mut Worker, ids: &[String; 2]) -> u64 {
    let tallied = process.says_within(ASKED_AGAIN, "tallied").await;
    let words: Vec<_> = tallied.splitn(5, ' ').collect();
    let ["till", visits, "Backend", "false", message] = words[..] else { panic!("`{tallied}`") };
    for id in ids {
        assert!(message.contains(&format!("cluster {id}")), "{message}");
    }
    visits.parse().expect("a number")
}

#[limit::test]
async fn endpoints_of_two_clusters_are_refused() {
    real_etcd_only!("embedded etcds all have one id");
    let ([one, two], ids) = two().await;
    let (one, two) = (one.endpoint(), two.endpoint());
    none_enters([&one, &two], &ids, None).await;
    // The error and the log name both endpoints.
    let mut process = process(&[&one, &two], None);
    let logged = process.asked("lock orders/7", "logged").await;
    assert!(logged.starts_with("ERROR") && logged.contains("etcd.two_clusters"), "{logged}");
    for part in ids.iter().chain([&one, &two]) {
        assert!(logged.contains(part.as_str()), "{logged}");
    }
}

/// In some versions only root may request the status, so other responses name the cluster.
#[limit::test]
async fn two_clusters_are_refused_to_users_other_than_root() {
    const USER: Option<&str> = Some("shop:secret");
    real_etcd_only!("an embedded etcd has no users");
    // With cheap logins: an endpoint whose login took longer than the connect time-out would count as silent.
    let shop =
        async || Shop::of(Etcd::start_with(&["--bcrypt-cost=4".into()]).await, "secret").await;
    let (one, two) = (shop().await, shop().await);
    let proxies = [&one, &two, &one].map(|shop| Proxy::start(shop.etcd.address()).unwrap());
    proxies.iter().for_each(Proxy::refuse_status);
    let ids = [id(one.root).await, id(two.root).await];
    let endpoints = proxies.each_ref().map(Proxy::endpoint);
    let [one, two, again] = endpoints.each_ref().map(String::as_str);
    none_enters([one, two], &ids, USER).await;
    process(&[one, again], USER).asked("lock orders/7", "locked").await;
}

/// An idle process notices it before it sends anything else, because it checks every new connection.
#[limit::test]
async fn address_that_leads_to_another_cluster_is_refused() {
    real_etcd_only!("embedded etcds all have one id");
    let ([one, two], ids) = two().await;
    let mut proxies = [&one, &one].map(|etcd| Proxy::start(etcd.address()).expect("a proxy"));
    let endpoints = proxies.each_ref().map(Proxy::endpoint);
    let mut process = process(&endpoints.each_ref().map(String::as_str), None);
    process.asked("lock orders/7", "locked").await;
    proxies.sort_by_key(|proxy| proxy.bytes(Direction::Requests));
    let [other, in_use] = &proxies;
    other.refuse();
    in_use.lead_to(two.address());
    in_use.reset_all();
    let failed = process.asked("lock orders/8", "failed").await;
    assert!(failed.contains("Backend") && ids.iter().all(|id| failed.contains(id)), "{failed}");
    let status = two.client().await.status().await.expect("a status");
    assert_eq!(status.header().expect("a header").revision(), 1, "something was written there");
}

#[limit::test]
async fn second_cluster_that_appears_later_is_refused() {
    real_etcd_only!("embedded etcds all have one id");
    let ([one, two], ids) = two().await;
    let late = Proxy::start(two.address()).unwrap();
    late.refuse();
    let (one, two) = (one.endpoint(), late.endpoint());
    let directory = TempDir::new().unwrap();
    let witness = Witness::new(directory.path());
    let tally = format!("tally till {}", directory.path().display());
    let mut processes: Vec<_> = (0..4).map(|_| process(&[&one, &two], None)).collect();
    processes.iter_mut().for_each(|process| process.send(&tally));
    within("a hundred visits", async {
        let mut tick = interval(Duration::from_millis(10));
        while !witness.count().is_ok_and(|count| count >= 100) {
            tick.tick().await;
        }
    })
    .await;
    late.accept_again().unwrap();
    let mut visits = 0;
    for process in &mut processes {
        visits += refused(process, &ids).await;
    }
    assert_eq!(witness.count().unwrap(), visits, "an update was lost");
}

/// Its endpoints begin to respond with another id one after another.
#[limit::test]
async fn cluster_made_anew_is_not_reported_as_a_second_one() {
    real_etcd_only!("embedded etcds all have one id");
    let ([one, two], _) = two().await;
    let proxies = [(); 3].map(|()| Proxy::start(one.address()).expect("a proxy"));
    let endpoints = proxies.each_ref().map(Proxy::endpoint);
    let mut process = process(&endpoints.each_ref().map(String::as_str), None);
    process.asked("lock orders/7", "locked").await;
    proxies.iter().for_each(|proxy| proxy.lead_to(two.address()));
    proxies.iter().for_each(Proxy::reset_all);
    process.asked("lock orders/8", "locked").await;
    assert_eq!(process.logged("etcd.two_clusters"), 0, "{:?}", process.output);
}
