//! Row `job`, the scheduled job: one of three replicas does it, and a late one does not do it again.

use std::time::Duration;

use crate::etcd::Etcd;
use crate::limit::run;
use crate::stage::Stage;

const EXAMPLE: &str = env!("CARGO_BIN_EXE_nightly");

#[test]
fn one_replica_does_the_job_and_a_late_one_skips_it() {
    run(async {
        let etcd = Etcd::start().await;
        let stage = Stage::new(etcd.endpoints());
        let mut replicas = ["a", "b", "c"].map(|replica| stage.start(EXAMPLE, &[replica]));
        for replica in &mut replicas {
            stage.ends_well(replica).await;
        }
        stage.says("done, 17 invoices").await;
        assert!(stage.count("does the job") == 1, "one does the job");
        assert!(stage.count("skipped") == 2, "the others skip it");

        // A replica whose clock is late, after the one that did the job has ended.
        let mut late = stage.start(EXAMPLE, &["late"]);
        stage.ends_well(&mut late).await;
        stage.says("replica late: skipped").await;
        etcd.until_below("locks/jobs/nightly/", 0).await;
        let mut next = stage.start(EXAMPLE, &["next"]);
        stage.ends_well(&mut next).await;
        let again = stage.says("replica next: does the job").await;
        let first = stage.says("does the job").await;
        // The stage may read a line late.
        assert!(
            again.at - first.at > Duration::from_millis(7_500),
            "the name stays locked for eight seconds",
        );
        stage.printed_in_order(&["does the job", "done", "late: skipped", "next: does the job"]);
    });
}
