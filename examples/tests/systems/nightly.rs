//! The scheduled job: one of three replicas does it, and one that is late does not do it again.

use std::time::Duration;

use crate::etcd::Etcd;
use crate::limit::run;
use crate::stage::Stage;

const EXAMPLE: &str = env!("CARGO_BIN_EXE_nightly");

#[test]
fn one_replica_of_three_does_the_job_and_a_late_one_skips_it() {
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

        // Its clock is late: the one that has done it has ended.
        let mut late = stage.start(EXAMPLE, &["late"]);
        stage.ends_well(&mut late).await;
        stage.says("replica late: skipped").await;
        etcd.until_below("locks/jobs/nightly/", 0).await;
        let mut next = stage.start(EXAMPLE, &["next"]);
        stage.ends_well(&mut next).await;
        let again = stage.says("replica next: does the job").await;
        let first = stage.says("does the job").await;
        // A line may be late in being read.
        assert!(
            again.at - first.at > Duration::from_millis(7_500),
            "it stays locked for eight seconds",
        );
        stage.said_in_order(&[
            "does the job",
            "done",
            "late: skipped",
            "next: does the job",
        ]);
    });
}
