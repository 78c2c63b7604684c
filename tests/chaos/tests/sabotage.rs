//! Sabotage tests: the checker detects workers that make a mistake, within a minute. Each test plays that minute on a real cluster,
//! so it runs only with `--ignored`. The tests in `src/checker/tests` cover each verdict.

use std::path::Path;
use std::process::Command;

/// Mistakes, each with the promise that it breaks.
const MISTAKES: [(&str, &str); 5] = [
    ("unlocked", "overlap"),
    ("lying-renewal", "overlap"),
    ("release-by-name", "overlap"),
    ("no-guard", "polled after its loss"),
    ("no-gate", "polled after its loss"),
];

#[test]
#[ignore = "five minutes of torture: `cargo test --release -p etcd-locked-chaos --test sabotage -- --ignored`"]
fn finds_every_mistake_that_workers_make() {
    for (mistake, breach) in MISTAKES {
        let played = Command::new(env!("CARGO_BIN_EXE_etcd-locked-chaos"))
            .args(["--minutes", "1", "--seed", "5", "--mix", "exclusive"])
            .args(["--only", "worker stopped", "--only", "worker cut off"])
            .args(["--sabotage", mistake, "--keep"])
            .arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join(mistake))
            .output()
            .expect("the runner starts");
        let text = String::from_utf8_lossy(&played.stdout);
        let verdict = format!(" times: {breach}");
        let mut lines = text.lines();
        let found = lines.any(|line| line.starts_with("VIOLATED") && line.ends_with(&verdict));
        assert!(found && played.status.code() == Some(1), "{mistake}: {text}");
    }
}
