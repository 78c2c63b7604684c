//! Row S2, the smallest revision wins: contenders are admitted in the order of arrival, and one that is killed while it waits is
//! skipped.

use std::time::Duration;

use crate::etcd::Etcd;
use crate::limit::run;
use crate::stage::Stage;

const EXAMPLE: &str = env!("CARGO_BIN_EXE_smallest-revision");
const WAITS: &str = "keep waiting until the lock is released.";

#[test]
fn the_smallest_revision_wins_and_a_killed_waiter_is_skipped() {
    run(async {
        let etcd = Etcd::start().await;
        let stage = Stage::new(etcd.endpoints());
        let mut contenders = Vec::new();
        for (before, name) in ["A", "B", "C", "D"].into_iter().enumerate() {
            contenders.push(stage.start(EXAMPLE, &[name]));
            // One after another, so that their order is certain.
            etcd.until_below("locks/contest/demo/", before + 1).await;
        }
        let keys = etcd.below("locks/contest/demo/").await;
        stage.says(&format!("D: {WAITS}")).await;
        contenders[1].kill();
        for contender in [0, 2, 3] {
            stage.ends_well(&mut contenders[contender]).await;
        }

        stage.printed_in_order(&[
            "A: lock successfully. [revision]:",
            &format!("B: {WAITS}"),
            &format!("C: {WAITS}"),
            &format!("D: {WAITS}"),
            "A: the work is done",
            "C: lock successfully. [revision]:",
            "C: the work is done",
            "D: lock successfully. [revision]:",
            "D: the work is done",
        ]);
        assert!(stage.count("lock successfully") == 3, "B has never had it");
        let mut revisions = Vec::new();
        for name in ["A", "C", "D"] {
            let line = stage.says(&format!("{name}: lock successfully")).await;
            let revision = line.text.rsplit(':').next().and_then(|it| it.parse().ok());
            revisions.push(revision.unwrap_or(0_i64));
        }
        assert!(revisions[0] > 0 && revisions.is_sorted_by(|a, b| a < b), "revisions rise",);
        // etcd has the same order.
        assert!(keys.is_sorted_by_key(|key| key.created), "keys are in order",);
        assert!(keys[0].created <= revisions[0], "A was the first in etcd");

        let left = stage.says("C: lock successfully").await.at - stage.says("D: keep").await.at;
        assert!(left < Duration::from_secs(25), "B blocks others no longer than its TTL",);
        assert!(etcd.is_empty().await, "nothing is left in etcd");
    });
}
