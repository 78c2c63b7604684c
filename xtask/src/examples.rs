//! Command `cargo xtask examples`: runs every example with its checks. The checks are tests, and several run at a time.

use std::ffi::OsString;

use crate::process::run;
use crate::{Result, etcd, peers, say, workspace};

/// Example: its label, and the module with its tests in the target `systems`.
#[derive(Debug, Clone, Copy)]
struct Row(&'static str, &'static str);

const ROWS: &[Row] = &[
    Row("S0", "four_conditions"),
    Row("S1", "jetcd_clients"),
    Row("S2", "smallest_revision"),
    Row("S3", "lock_service"),
    Row("S4", "transaction_lock"),
    Row("S5", "watchdog"),
    Row("S6", "zookeeper"),
    Row("S7", "etcdsync"),
    Row("axum", "shop_axum"),
    Row("tonic", "shop_tonic"),
    Row("actix", "shop_actix"),
    Row("interop", "interop"),
    Row("fencing", "fencing"),
    Row("job", "nightly"),
    Row("leader", "leader"),
    Row("ops", "ops"),
];

/// Number of tests at a time. They mostly wait, some of them until leases of two seconds expire.
const THREADS: &str = "--test-threads=8";

/// Runs the rows with these labels, or all.
pub(crate) fn examples(labels: &[String]) -> Result<String> {
    let mut rows = Vec::new();
    for label in labels {
        let row = ROWS.iter().find(|row| row.0.eq_ignore_ascii_case(label));
        rows.push(*row.ok_or_else(|| {
            let labels: Vec<_> = ROWS.iter().map(|row| row.0).collect();
            format!("there is no row `{label}`, only {}", labels.join(", "))
        })?);
    }
    if rows.is_empty() {
        rows.extend(ROWS);
    }
    let etcd = etcd::find(None)?;
    let contenders = contenders(&rows);

    say::step(format_args!(
        "{} rows, each test on a separate etcd {} (the first build takes a minute or two)",
        rows.len(),
        etcd.version
    ));
    let mut cargo = workspace::cargo();
    cargo
        .args(["test", "--package", "etcd-locked-examples"])
        .args(["--test", "systems", "--", THREADS])
        .arg("--show-output") // some tests print what they leave out
        .args(rows.iter().map(|row| format!("{}::", row.1)))
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
    match missing.is_empty() {
        true => Ok(format!("examples: ok — {} rows, all checks passed", rows.len())),
        false => Err(format!("programs in other languages were left out:{missing}")),
    }
}

/// Program in another language that tests need: the test that cannot run without it, and either the variables through which the
/// tests find it, or what this machine lacks.
type Contender = (Option<&'static str>, Result<Vec<(&'static str, OsString)>>);

/// Brings the programs that these rows need.
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
        contenders.push((None, python));
    }
    if has("interop") || has("S1") {
        let jetcd = peers::jetcd().map(|classes| vec![("INTEROP_JETCD", classes)]);
        contenders.push((Some("jetcd_and_we"), jetcd));
    }
    if has("ops") {
        let promtool = peers::promtool().map(|promtool| vec![("PROMTOOL", promtool.into())]);
        contenders.push((Some("alerts_fire"), promtool));
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
            let file = file.join(row.1).with_extension("rs");
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            let has = text.contains("#[test]") || text.contains("plays_every_scene!(");
            assert!(has, "{} has no test: the row would pass unseen", file.display());
        }
    }
}
