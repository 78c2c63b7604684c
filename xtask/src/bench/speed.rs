//! `cargo xtask bench`: brings what the peers need, and has `benches` run the rows.

use std::path::Path;
use std::process::Command;

use super::{rustc, telemetry};
use crate::options;
use crate::process::{output, run};
use crate::{Result, peers, say, workspace};

/// The benches' binary.
const BINARY: (&str, &str) = ("etcd-locked-benches", "bench");

/// That of row B21. It has features of crates that would slow down the others.
const FENCED: (&str, &str) = ("etcd-locked-bench-fenced", "bench-fenced");

pub(crate) fn speed(options: &options::Bench) -> Result<String> {
    let args = options.args();
    say::step("building the benches");
    let [bench] = workspace::build(&["--release"], [BINARY])?;
    let needed = output(Command::new(&bench).arg("needs").args(&args))?;

    let etcd = options.asked.find()?;
    let mut command = Command::new(&bench);
    command
        .args(args)
        .env("ETCD_BIN", &etcd.server)
        .env("BENCH_RUSTC", version(Command::new(rustc()).arg("--version"))?);
    for peer in needed.lines() {
        match peer {
            "go" => {
                say::step("the peer in Go");
                let go = peers::go("benches/peers/go", "worker")?;
                let versions = format!("{}, clientv3 {}", go.version, go.client);
                command.env("BENCH_GO_PEER", go.program).env("BENCH_GO", versions);
            }
            "aetcd" => {
                say::step("the peer in Python");
                let python = peers::python()?;
                command
                    .env("BENCH_PYTHON", python.interpreter)
                    .env("BENCH_PYTHON_PACKAGES", python.packages);
            }
            "bare" => {
                command.env("BENCH_BARE", telemetry::build("bare")?);
            }
            // As `unobserved` it is the same program.
            "observed" => {
                command.env("BENCH_OBSERVED", telemetry::build("observed")?);
            }
            "fenced" => {
                say::step("the program of B21");
                let [program] = workspace::build(&["--release"], [FENCED])?;
                command.env("BENCH_FENCED", program);
            }
            _ => {} // in the binary
        }
    }

    let place = match (options.rows.is_empty(), options.quick) {
        (true, false) => Some(workspace::root().join("benches")),
        // Figures of a few minutes are no figures for others to read.
        (true, true) => Some(workspace::root().join("target/bench")),
        (false, _) => None,
    };
    if let Some(place) = &place {
        command.arg("--write").arg(place);
    }
    run("the bench", &mut command)
        .map_err(|status| format!("{status}; what it missed is above"))?;
    Ok(format!("bench: ok{}", wrote(place.as_deref())))
}

fn wrote(place: Option<&Path>) -> String {
    place.map_or(String::new(), |place| format!(" — {}", place.join("RESULTS.md").display()))
}

/// What a program says of itself, in a line.
fn version(command: &mut Command) -> Result<String> {
    Ok(output(command)?.trim().to_owned())
}
