//! Tests of a cluster of three: leaders, partitions, and members that leave and join.

use std::time::Duration;

use etcd_locked_devkit::{Cluster, Setup, until};

const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn a_partition_makes_another_member_lead() {
    let cluster = Cluster::start(3).unwrap();
    let old = cluster.await_leader().unwrap();
    let serves = |at: usize| {
        let gateway = cluster.members()[at].gateway();
        let gateway = gateway.limit(Duration::from_millis(500));
        gateway.put("k", "").is_ok()
    };
    cluster.isolate(old).unwrap();
    let mut new = old;
    until("another member leads", LIMIT, || {
        new = cluster.leader().unwrap_or(old);
        new != old
    })
    .unwrap();
    until("the majority serves", LIMIT, || serves(new)).unwrap();
    assert!(!serves(old), "a leader without a quorum confirms nothing");
    cluster.heal();
    until("the old leader follows", LIMIT, || serves(old)).unwrap();
}

#[test]
fn a_cluster_begins_anew_with_the_users_of_its_snapshot() {
    let mut cluster = Cluster::start_with(3, Setup::default().flags(["--bcrypt-cost=4"])).unwrap();
    cluster.enable_auth("user", "password", &["k"]).unwrap();
    let member = cluster.members()[0].clone();
    member.gateway().put("k", "").unwrap();
    let file = member.file("snapshot");
    member.snapshot(&file).unwrap();
    let stranger = etcd_locked_devkit::Gateway::new(cluster.members()[2].direct());
    cluster.begin_anew(None).unwrap();
    assert_eq!(stranger.keys("").unwrap(), Vec::<String>::new());
    cluster.begin_anew(Some(&file)).unwrap();
    assert!(stranger.keys("k").is_err());
    assert_eq!(member.gateway().keys("k").unwrap(), ["k"]);
}
