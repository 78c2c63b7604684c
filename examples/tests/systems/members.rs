//! Row `members`: the cluster's members, changed under a lock.

use crate::etcd::{Etcd, free_port};
use crate::limit::run;
use crate::stage::Stage;

const EXAMPLE: &str = env!("CARGO_BIN_EXE_members");

#[test]
fn a_learner_is_added_and_removed_under_the_lock() {
    run(async {
        let etcd = Etcd::start().await;
        let stage = Stage::new(etcd.endpoints());
        let peer = format!("http://127.0.0.1:{}", free_port());
        let mut client = etcd.client().await;
        let held = client.lock("locks/cluster/members", None).await;
        let held = held.expect("the lock, as another operator has it");

        let mut example = stage.start(EXAMPLE, &[&peer]);
        etcd.until_below("locks/cluster/members/", 2).await;
        let members = client.member_list().await.expect("members");
        assert_eq!(members.members().len(), 1, "it waits for the lock");
        client.unlock(held.key()).await.expect("the lock, given back");

        stage.ends_well(&mut example).await;
        let added = format!("learner  not started  [{peer:?}]");
        stage.printed_in_order(&["voter", "added ", &added, "removed ", "voter"]);
        let members = client.member_list().await.expect("members");
        assert_eq!(members.members().len(), 1, "as before");
    });
}
