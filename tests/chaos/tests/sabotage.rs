//! The checker can fail: workers that make a mistake are found out, within a minute. Each plays that minute on a real cluster, so
//! these run by `--ignored` only; each verdict by itself is tested in `src/checker/tests`.

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// A cluster of three and four workers are enough for a machine.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Plays a minute with workers that make this mistake, and expects the runner to say so.
fn finds(mistake: &str, breach: &str) {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let keep = Path::new(env!("CARGO_TARGET_TMPDIR")).join(mistake);
    let played = Command::new(env!("CARGO_BIN_EXE_etcd-locked-chaos"))
        .args(["--minutes", "1", "--seed", "5", "--mix", "exclusive"])
        .args(["--only", "worker stopped", "--only", "worker cut off"])
        .args(["--sabotage", mistake, "--keep"])
        .arg(&keep)
        .output()
        .expect("the runner starts");
    let text = String::from_utf8_lossy(&played.stdout);
    let verdict = format!(" times: {breach}");
    let found = text.lines().any(|line| line.starts_with("VIOLATED") && line.ends_with(&verdict));
    assert!(found && played.status.code() == Some(1), "{text}");
}

#[test]
#[ignore = "a minute of torture: `cargo test --release -p etcd-locked-chaos --test sabotage -- --ignored`"]
fn finds_calls_that_take_no_lock() {
    finds("unlocked", "overlap");
}

#[test]
#[ignore = "a minute of torture: `cargo test --release -p etcd-locked-chaos --test sabotage -- --ignored`"]
fn finds_a_renewal_that_lies() {
    finds("lying-renewal", "overlap");
}

#[test]
#[ignore = "a minute of torture: `cargo test --release -p etcd-locked-chaos --test sabotage -- --ignored`"]
fn finds_a_release_by_name() {
    finds("release-by-name", "overlap");
}

#[test]
#[ignore = "a minute of torture: `cargo test --release -p etcd-locked-chaos --test sabotage -- --ignored`"]
fn finds_a_body_outside_its_guard() {
    finds("no-guard", "polled after its loss");
}

#[test]
#[ignore = "a minute of torture: `cargo test --release -p etcd-locked-chaos --test sabotage -- --ignored`"]
fn finds_polls_that_no_gate_stands_before() {
    finds("no-gate", "polled after its loss");
}
