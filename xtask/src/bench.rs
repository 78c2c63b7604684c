//! Command `cargo xtask bench`: brings what the peers need, and runs the rows with the program of `benches`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use crate::etcd;
use crate::options::Args;
use crate::process::{output, run};
use crate::{Result, peers, say, workspace};

/// Binary of the benches.
const BINARY: (&str, &str) = ("etcd-locked-benches", "bench");

/// Binary of row B21. It enables features of crates that would slow down the other rows.
const FENCED: (&str, &str) = ("etcd-locked-bench-fenced", "bench-fenced");

/// Runs the rows.
pub(crate) fn bench(mut args: Args) -> Result<String> {
    let choice = args.etcd()?;
    // A short run's figures are not published, and a few rows do not make a page.
    let place = match args.has("--quick") {
        false => workspace::root().join("benches"),
        true => workspace::root().join("target/bench"),
    };
    let whole = !args.has("--row");
    let args = args.rest();
    say::step("building the benches");
    let [bench] = workspace::build(&["--release"], [BINARY])?;
    let needed = output(Command::new(&bench).arg("needs").args(&args))?;

    let etcd = etcd::find(choice.as_ref())?;
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let rustc = output(Command::new(rustc).arg("--version"))?;
    let mut command = Command::new(&bench);
    command.args(args).env("ETCD_BIN", &etcd.server).env("BENCH_RUSTC", rustc.trim());
    for peer in needed.lines() {
        command.envs(brought(peer)?);
    }

    if whole {
        command.arg("--write").arg(&place);
    }
    run("the bench", &mut command).map_err(|status| format!("{status}; the failures are above"))?;
    Ok(match whole {
        true => format!("bench: ok — {}", place.join("RESULTS.md").display()),
        false => "bench: ok".to_owned(),
    })
}

/// Brings a peer; returns the variables through which the bench finds it.
fn brought(peer: &str) -> Result<Vec<(&'static str, OsString)>> {
    Ok(match peer {
        "go" => {
            say::step("the peer in Go");
            let go = peers::go("benches/peers/go", "worker")?;
            let versions = format!("{}, clientv3 {}", go.version, go.client);
            vec![("BENCH_GO_PEER", go.program.into()), ("BENCH_GO", versions.into())]
        }
        "aetcd" => {
            say::step("the peer in Python");
            let python = peers::python()?;
            vec![
                ("BENCH_PYTHON", python.interpreter.into()),
                ("BENCH_PYTHON_PACKAGES", python.packages.into()),
            ]
        }
        "bare" => vec![("BENCH_BARE", telemetry("bare")?.into())],
        // `unobserved` is the same program.
        "observed" => vec![("BENCH_OBSERVED", telemetry("observed")?.into())],
        "fenced" => {
            say::step("the program of B21");
            let [program] = workspace::build(&["--release"], [FENCED])?;
            vec![("BENCH_FENCED", program.into())]
        }
        _ => vec![], // in the binary
    })
}

/// Builds the program of row B20 with a feature of its crate: without spans and metrics, or with both.
fn telemetry(feature: &str) -> Result<PathBuf> {
    say::step(format_args!("the program of B20, feature `{feature}`"));
    let copy = workspace::outside("benches/telemetry")?;
    let mut cargo = workspace::cargo_outside("build", &copy);
    cargo.args(["--release", "--quiet", "--features", feature]);
    run("cargo build", &mut cargo)?;
    // Copied, because the next feature's program has the same name.
    let program = copy.join(feature);
    workspace::copy(workspace::target().join("release/telemetry"), &program)?;
    Ok(program)
}
