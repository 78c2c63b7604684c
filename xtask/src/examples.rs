//! `cargo xtask examples`: runs every example with its checks, which are tests, several at a time.

use std::path::PathBuf;

use clap::ValueEnum;
use clap::builder::PossibleValue;

use crate::etcd::Etcd;
use crate::process::run;
use crate::{Result, peers, say, workspace};

/// An example: label, title, and the module of the target `systems` with its tests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row(&'static str, &'static str, &'static str);

const ROWS: &[Row] = &[
    Row("S0", "four conditions", "four_conditions"),
    Row("S1", "jetcd clients", "jetcd_clients"),
    Row("S2", "smallest revision", "smallest_revision"),
    Row("S3", "lock service", "lock_service"),
    Row("S4", "transaction lock", "transaction_lock"),
    Row("S5", "watchdog", "watchdog"),
    Row("S6", "zookeeper recipe", "zookeeper"),
    Row("S7", "etcdsync", "etcdsync"),
    Row("axum", "a service", "shop_axum"),
    Row("tonic", "a service", "shop_tonic"),
    Row("actix", "a service", "shop_actix"),
    Row("interop", "other languages", "interop"),
    Row("members", "cluster membership", "members"),
    Row("alarms", "etcd at its quota", "alarms"),
    Row("job", "one replica of three", "nightly"),
    Row("leader", "long holder, cut off", "leader"),
];

impl ValueEnum for Row {
    fn value_variants<'a>() -> &'a [Self] {
        ROWS
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0).help(self.1))
    }
}

/// Number of tests at a time. They mostly wait, some of them for leases of two seconds.
const THREADS: &str = "--test-threads=8";

/// Runs these rows, or all.
pub(crate) fn examples(chosen: &[Row]) -> Result<String> {
    let rows = if chosen.is_empty() { ROWS } else { chosen };
    say::step("etcd");
    let etcd = Etcd::find()?;
    let brought = match rows.iter().any(|row| row.0 == "interop") {
        true => bring(),
        false => Ok(Vec::new()),
    };
    if let Err(missing) = &brought {
        say::note(missing);
    }

    say::step(format_args!(
        "{} rows, each test on etcd {} of its own (the first time building takes a minute or two)",
        rows.len(),
        etcd.version
    ));
    let mut cargo = workspace::cargo();
    cargo
        .args(["test", "--package", "etcd-locked-examples"])
        .args(["--test", "systems", "--", THREADS])
        .arg("--show-output") // some tests say what they leave out
        .args(chosen.iter().map(|row| format!("{}::", row.2)))
        .env("RUST_BACKTRACE", "0") // the printed and the expected lines are enough
        .env("ETCD_BIN", &etcd.server);
    if let Ok(variables) = &brought {
        let variables = variables.iter().map(|(name, path)| (name, path));
        cargo.arg("--include-ignored").envs(variables);
    }
    run("cargo test", &mut cargo)?;
    brought.map_err(|missing| format!("what needs Go and Python was left out: {missing}"))?;
    let count = rows.len();
    Ok(format!("examples: ok — {count} rows, each as it should be"))
}

/// Brings what `interop` needs and not every machine has. The tests that need it are ignored elsewhere.
fn bring() -> Result<Vec<(&'static str, PathBuf)>> {
    let go = peers::go("examples/interop/go", "contender")?;
    let python = peers::python()?;
    Ok(vec![
        ("INTEROP_GO", go.program),
        ("INTEROP_PYTHON", python.interpreter),
        ("INTEROP_PYTHON_PACKAGES", python.packages),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_tests_of_its_own() {
        for row in ROWS {
            let file = workspace::root().join("examples/tests/systems");
            let file = file.join(row.2).with_extension("rs");
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            let has = text.contains("#[test]") || text.contains("plays_every_scene!(");
            assert!(
                has,
                "{} has no test: the row would pass unseen",
                file.display()
            );
        }
    }
}
