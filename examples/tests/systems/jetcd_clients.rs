//! S1, jetcd's clients: an etcd client with the settings of the locks, and a fenced write.

use crate::etcd::Etcd;
use crate::limit::run;
use crate::stage::Stage;

#[test]
fn a_client_does_what_etcd_does_and_a_fence_refuses_the_late() {
    run(async {
        let etcd = Etcd::start().await;
        let stage = Stage::new(etcd.endpoints());
        let mut example = stage.start(env!("CARGO_BIN_EXE_jetcd-clients"), &[]);
        stage.ends_well(&mut example).await;
        let endpoint = etcd.endpoints();
        stage.said_in_order(&[
            "KV: jetcd/greeting = hello",
            "Lease: granted for 60 s",
            "Watch: Put jetcd/greeting",
            "Watch: Put jetcd/session",
            "Watch: Delete jetcd/session",
            &format!("[{endpoint:?}]"), // Cluster
            "Maintenance: etcd 3.",
            "fenced write under the lock: done",
            "the lock is lost: ",
            "fenced write after that: refused by etcd",
            "the balance is 100",
        ]);
        stage.check(etcd.is_empty().await, "nothing is left in etcd");
    });
}
