//! Row S6, ZooKeeper's recipe: locks, sequential nodes, sessions, deadlock, readers, reentrant calls.

use crate::etcd::Etcd;
use crate::limit::run;
use crate::stage::Stage;

const RECIPE: &str = env!("CARGO_BIN_EXE_zookeeper");

#[test]
fn the_recipe_step_by_step() {
    run(async {
        let etcd = Etcd::start().await;
        let stage = Stage::new(etcd.endpoints());
        stage.ends_well(&mut stage.start(RECIPE, &[])).await;
        stage.printed_in_order(&[
            "== lock, tryLock, unlock",
            "a locks, with token ",
            "b tries: held by a",
            "a unlocks",
            "b tries: locks, with token ",
            "b unlocks",
            "== sequential nodes",
            "a locks",
            "node of a: ",
            "node of b: ",
            "node of c: ",
            "node of d: ",
            "c is killed",
            "its node has gone with its session",
            "a unlocks",
            "b locks",
            "b unlocks",
            "d locks",
            "d unlocks",
            "== a session expires",
            "a locks, with token ",
            "session ",
            "a has stopped: lock `zookeeper/session` was lost: ",
            "in another session ",
            "== A-B and B-A",
            "is refused: deadlock",
            ": done",
            ": done",
            "== read-write lock",
            " reads",
            " reads",
            "c wants to write",
            " has read",
            " has read",
            "c writes",
            "== reentrant lock",
            "a ships order 7",
            "a bills order 7, under the same lock",
            "held by this task",
        ]);

        let nodes: Vec<i64> = ["a", "b", "c", "d"].map(|name| node(&stage, name)).to_vec();
        assert!(nodes.is_sorted_by(|one, next| one < next), "nodes are in sequence",);
        assert!(stage.count("c locks") == 0, "a killed client gets no lock");
        let tokens = tokens(&stage);
        assert!(
            tokens.len() == 4 && tokens.is_sorted_by(|one, next| one < next),
            "the token grows",
        );
        assert!(stage.count("is refused: deadlock") == 1, "one is refused, once");
        // The refused client has released the lock that the other wants, so the other ends first.
        let refused = stage.says("is refused: deadlock").await.text;
        let (refused, other) = if refused.starts_with("a ") { ("a", "b") } else { ("b", "a") };
        stage.printed_in_order(&[
            &format!("{refused} is refused: deadlock"),
            &format!("{other} has {} and", if other == "a" { "A" } else { "B" }),
            &format!("{refused} has {} and", if refused == "a" { "A" } else { "B" }),
        ]);
        assert!(etcd.is_empty().await, "nothing is left in etcd");
    });
}

fn node(stage: &Stage, name: &str) -> i64 {
    let begins = format!("node of {name}: ");
    let lines = stage.lines();
    let line = lines.iter().find_map(|line| line.strip_prefix(&begins));
    let revision = line.and_then(|rest| rest.split(',').next());
    revision.expect("a node").parse().expect("a revision")
}

fn tokens(stage: &Stage) -> Vec<i64> {
    let lines = stage.lines();
    let token = |line: &String| {
        let (_, rest) = line.split_once(", with token ")?;
        rest.split('.').next()?.parse().ok()
    };
    lines.iter().filter_map(token).collect()
}
