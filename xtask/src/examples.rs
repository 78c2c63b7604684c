//! `cargo xtask examples`: runs every example with its checks, which are tests, several at a time.

use std::ffi::OsString;

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
    let contenders = contenders(rows);

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
        .arg("--include-ignored")
        .env("ETCD_BIN", &etcd.server);
    let mut missing = String::new();
    for (test, built) in contenders {
        match built {
            Ok(variables) => drop(cargo.envs(variables)),
            Err(error) => {
                say::note(&error);
                missing += &format!("\n    {error}");
                cargo.args(test.iter().flat_map(|test| ["--skip", test]));
            }
        }
    }
    run("cargo test", &mut cargo)?;
    if !missing.is_empty() {
        return Err(format!("contenders were left out:{missing}"));
    }
    let count = rows.len();
    Ok(format!("examples: ok — {count} rows, each as it should be"))
}

/// A contender in another language: the test that cannot do without it, and the variables by which the tests find it, or what
/// this machine lacks.
type Contender = (Option<&'static str>, Result<Vec<(&'static str, OsString)>>);

/// Builds the contenders of these rows.
fn contenders(rows: &[Row]) -> Vec<Contender> {
    let has = |label| rows.iter().any(|row| row.0 == label);
    let mut contenders = Vec::new();
    if has("interop") {
        let go = peers::go("examples/interop/go", "contender");
        let go = go.map(|go| vec![("INTEROP_GO", go.program.into())]);
        contenders.push((None, go));
        let python = peers::python().map(|python| {
            vec![
                ("INTEROP_PYTHON", python.interpreter.into()),
                ("INTEROP_PYTHON_PACKAGES", python.packages.into()),
            ]
        });
        contenders.push((Some("aetcds_bare_lock"), python));
    }
    if has("interop") || has("S1") {
        let jetcd = peers::jetcd().map(|classes| vec![("INTEROP_JETCD", classes)]);
        contenders.push((Some("jetcd_and_we"), jetcd));
    }
    contenders
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
            assert!(has, "{} has no test: the row would pass unseen", file.display());
        }
    }
}
