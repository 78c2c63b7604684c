//! Row S1, jetcd's clients: an etcd client with the settings of the locks, a fenced write, and jetcd itself in our queue.

use crate::etcd::Etcd;
use crate::interop::count_together;
use crate::limit::run;
use crate::stage::Stage;

const EXAMPLE: &str = env!("CARGO_BIN_EXE_jetcd-clients");

#[test]
fn a_client_has_etcds_api_and_a_fence_refuses_late_writes() {
    run(async {
        let etcd = Etcd::start().await;
        let stage = Stage::new(etcd.endpoints());
        let mut example = stage.start(EXAMPLE, &[]);
        stage.ends_well(&mut example).await;
        let endpoint = etcd.endpoints();
        stage.printed_in_order(&[
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
        assert!(etcd.is_empty().await, "nothing is left in etcd");
    });
}

#[test]
#[ignore = "needs jetcd for Java; run `cargo xtask examples S1`, which brings it"]
fn jetcd_and_we_count_to_200_in_one_queue() {
    run(count_together(&["ours", "jetcd"], 100));
}
