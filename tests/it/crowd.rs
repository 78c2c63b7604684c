//! Many processes that ask for several names at random, some while they hold others: nobody overlaps, nothing hangs, and every
//! call is served or refused with a reason.
//!
//! The full run, sixteen processes for a minute: `cargo xtask test --test it -- --ignored sixteen_processes --nocapture`.

use std::fs;
use std::time::Duration;

use etcd_locked_tests::Witness;
use tempfile::tempdir;

use crate::corner::Corner;
use crate::limit::{PATIENCE, run};
use crate::worker::Worker;

/// As many as the workers choose from.
const NAMES: u64 = 8;

/// A call waits for 10 s at most, and what it has inside for 10 s more.
const LONGEST: u64 = 21_000;

async fn roam(processes: u64, seconds: u64) {
    let corner = Corner::new().await;
    let directory = tempdir().expect("a directory");
    let place = |name: u64| directory.path().join(name.to_string());
    for name in 0..NAMES {
        fs::create_dir(place(name)).expect("a directory");
    }
    let mut workers: Vec<Worker> = (0..processes)
        .map(|_| Worker::start(corner.environment()))
        .collect();
    for (seed, worker) in workers.iter_mut().enumerate() {
        let directory = directory.path().display();
        worker.tell(&format!("roam {seconds} {seed} {directory}"));
    }
    let limit = Duration::from_secs(seconds) + PATIENCE;
    let [mut served, mut visits, mut refused, mut longest] = [0; 4];
    for worker in &mut workers {
        let roamed = worker.says_within(limit, "roamed").await;
        let figures: Vec<u64> = roamed
            .split(' ')
            .map(|n| n.parse().expect("a number"))
            .collect();
        assert!(figures[0] > 0, "a process was never served");
        served += figures[0];
        visits += figures[1];
        refused += figures[2];
        longest = longest.max(figures[3]);
        assert_eq!(worker.unheard(), [""; 0]);
    }
    println!(
        "{processes} processes, {seconds} s: {served} calls served, {refused} refused with a reason, the longest took {longest} ms"
    );
    let counted: u64 = (0..NAMES)
        .map(|name| Witness::new(place(name)).count().expect("a counter"))
        .sum();
    assert_eq!(counted, visits, "two were inside at once");
    assert!(longest < LONGEST, "{longest} ms");
    corner.until_empty().await;
}

#[test]
fn processes_that_take_several_names_at_random_neither_overlap_nor_hang() {
    run(roam(4, 5));
}

#[test]
#[ignore = "takes more than a minute"]
fn sixteen_processes_for_a_minute() {
    run(roam(16, 60));
}
