//! Random load of many processes: calls want several names, some while they hold others. No bodies overlap, no call hangs, and
//! every call is admitted or refused with a reason.
//!
//! The full run, sixteen processes for a minute: `cargo xtask test --test it -- --ignored sixteen_processes --nocapture`.

use std::fs;
use std::time::Duration;

use etcd_locked_tests::Witness;
use tempfile::tempdir;

use crate::corner::Corner;
use crate::limit::{PATIENCE, run};
use crate::worker::Worker;

/// The number of names that the workers choose from.
const NAMES: u64 = 8;

/// Milliseconds that a call may take: it waits for at most 10 s, and the call inside it for 10 s more.
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
        worker.send(&format!("roam {seconds} {seed} {directory}"));
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
        assert_eq!(worker.unread(), [""; 0]);
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
fn random_calls_for_several_names_exclude_and_end() {
    run(roam(4, 5));
}

#[test]
#[ignore = "takes more than a minute"]
fn sixteen_processes_for_a_minute() {
    run(roam(16, 60));
}
