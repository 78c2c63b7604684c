//! Compaction: a lock that is older than what etcd has kept of its history is watched like any other.

use std::time::Duration;

use super::stage::{Stage, plays};
use crate::world::violation::must;

/// How soon a holder learns that an operator has deleted its key.
const SOON: Duration = Duration::from_secs(2);

#[test]
fn holder_learns_of_its_deleted_key_after_a_compaction() {
    plays(|| {
        let mut stage = Stage::of(2);
        stage.take(0, "name");
        stage.take(1, "other");
        stage.store.compact();
        // What is held for a second is watched.
        stage.run(Duration::from_secs(4));
        for key in stage.keys("name") {
            stage.store.delete(key.as_bytes());
        }
        let stopped = stage.until(SOON, |stage| stage.owners("name").is_empty());
        must!(InTime, stopped, "its key is gone, and its body runs on");
    });
}
