//! Row S0, the four conditions: exclusion, safety, availability, symmetry, on a cluster of three.

use std::time::Duration;

use tokio::time::sleep;

use crate::etcd::Etcd;
use crate::limit::run;
use crate::stage::Stage;

#[test]
fn each_of_the_four_conditions_holds() {
    run(async {
        let mut etcd = Etcd::start_cluster(3).await;
        let stage = Stage::new(etcd.endpoints());
        let mut example = stage.start(env!("CARGO_BIN_EXE_four-conditions"), &[]);

        let asked = stage.says("leads; end that server").await.text;
        let holder = etcd.below("locks/conditions/availability/").await;
        assert_eq!(holder.len(), 1);
        let members = &mut etcd.members;
        let leader = members.iter().position(|it| asked.contains(&it.endpoint()));
        // A dropped member is killed.
        drop(members.remove(leader.expect("the example names one of the members")));
        example.enter();
        // After the TTL of ten seconds, and some seconds before the body ends.
        sleep(Duration::from_secs(11)).await;
        let kept = etcd.below("locks/conditions/availability/").await;
        assert_eq!(kept, holder, "the holder has another key or lease");
        stage.says("the lock was kept for longer than its TTL").await;
        stage.ends_well(&mut example).await;

        stage.printed_in_order(&[
            "exclusion: three processes, 60 rounds, 60 counted",
            "safety: process ",
            "safety: it was killed, and ",
            "availability: http://127.0.0.1:",
            "availability: the lock was kept for longer than its TTL",
            "availability: 20 rounds without it",
            "symmetry: a late release, and a key of the same name, created later: it is still there",
            "symmetry: lock `conditions/symmetry` was not free",
            "symmetry: a late release, and a waiter that goes away: its owner has it still",
            "symmetry: its owner has released it",
        ]);
        let freed = stage.says("safety: it was killed").await.text;
        let waited: Option<f64> = freed.split(' ').find_map(|word| word.parse().ok());
        // The lease was renewed up to a third of the TTL before the kill, and etcd takes a moment to notice its expiry.
        let in_time = waited.is_some_and(|waited| waited > 2.0 && waited < 15.0);
        assert!(in_time, "a crashed holder blocks others for its TTL and no longer",);
    });
}
