//! Command `cargo xtask bench`: brings what the peers need, and runs the rows with the program of `benches`.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::etcd::{self, Choice};
use crate::options::Args;
use crate::process::{output, run};
use crate::{Result, peers, say, workspace};

/// Binary of the benches.
const BINARY: (&str, &str) = ("etcd-locked-benches", "bench");

/// Binary of row B21. It enables features of crates that would slow down the other rows.
const FENCED: (&str, &str) = ("etcd-locked-bench-fenced", "bench-fenced");

/// The largest archive that a packed run may have, so that it is easy to carry to another machine.
const MOST_PACKED: u64 = 60 << 20;

/// Runs the rows, or packs a short run of them for another machine, or takes in what that run has written.
pub(crate) fn bench(mut args: Args) -> Result<String> {
    let is_short = args.has("--short") || args.has("--pack");
    let choice = match args.etcd()? {
        None if is_short => Some("newest".parse()?), // current peers
        choice => choice,
    };
    if let Some(file) = args.value("--pack")? {
        args.end()?;
        return pack(choice.as_ref(), Path::new(&file));
    }
    if let Some(folder) = args.value("--read")? {
        args.end()?;
        return read(Path::new(&folder));
    }
    // Figures of `--quick` are not published, and a few rows do not make a page.
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
    let mut command = Command::new(&bench);
    command.args(args).env("ETCD_BIN", &etcd.server).env("BENCH_RUSTC", rustc()?);
    for peer in needed.lines() {
        command.envs(brought(peer)?);
    }

    if whole {
        command.arg("--write").arg(&place);
    }
    run("the bench", &mut command).map_err(|status| format!("{status}; the failures are above"))?;
    Ok("bench: ok".to_owned())
}

/// Packs a short run: its programs, and a script that needs neither network nor toolchain.
fn pack(etcd: Option<&Choice>, file: &Path) -> Result<String> {
    say::step("building the benches");
    let [bench] = workspace::build(&["--release"], [BINARY])?;
    let needed = output(Command::new(&bench).args(["needs", "--short"]))?;
    let folder = workspace::target().join("bench/packed");
    let io = workspace::failed_at(&folder);
    if folder.is_dir() {
        fs::remove_dir_all(&folder).map_err(io)?;
    }
    fs::create_dir_all(&folder).map_err(io)?;
    workspace::copy(&bench, folder.join("bench"))?;
    workspace::copy(etcd::find(etcd)?.server, folder.join("etcd"))?;
    let mut script = format!(
        "#!/bin/sh\n# Runs the rows in ten minutes; writes the results into the folder $1.\n\
         set -eu\nresults=$(mkdir -p \"$1\" && cd \"$1\" && pwd)\ncd \"$(dirname \"$0\")\"\n\
         export ETCD_BIN=\"$PWD/etcd\" BENCH_RUSTC='{}'\n",
        rustc()?
    );
    for (variable, value) in needed.lines().map(brought).collect::<Result<Vec<_>>>()?.concat() {
        let value = match Path::new(&value) {
            program if program.is_file() => {
                let name = program.file_name().unwrap_or_default().display().to_string();
                workspace::copy(program, folder.join(&name))?;
                format!("\"$PWD/{name}\"")
            }
            text => format!("'{}'", text.display()),
        };
        script += &format!("export {variable}={value}\n");
    }
    // A missed target is a result too.
    script += "rm -f \"$results/SHORT.md\"\n\
               ./bench --short --write \"$results\" || [ -e \"$results/SHORT.md\" ]\n";
    workspace::write(folder.join("run.sh"), script)?;
    run("tar", Command::new("tar").arg("-czf").arg(file).arg("-C").arg(&folder).arg("."))?;
    let size = fs::metadata(file).map_err(workspace::failed_at(file))?.len();
    if size > MOST_PACKED {
        return Err(format!("{} has {size} bytes, more than {MOST_PACKED}", file.display()));
    }
    Ok(format!(
        "bench: packed {} ({} MiB). On the other machine: mkdir run && tar -xzf {0} -C run && sh run/run.sh results. Back \
         here: cargo xtask bench --read results",
        file.display(),
        size >> 20
    ))
}

/// Takes in the results that a packed run has written on another machine.
fn read(folder: &Path) -> Result<String> {
    let benches = workspace::root().join("benches");
    let plots = benches.join("plots/short");
    fs::create_dir_all(&plots).map_err(workspace::failed_at(&plots))?;
    for plot in workspace::entries(&folder.join("plots/short"))? {
        workspace::copy(&plot, plots.join(plot.file_name().unwrap_or_default()))?;
    }
    workspace::copy(folder.join("SHORT.md"), benches.join("SHORT.md"))?;
    Ok(format!("bench: ok — {}", benches.join("SHORT.md").display()))
}

/// Returns the compiler's version.
fn rustc() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    output(Command::new(rustc).arg("--version")).map(|version| version.trim().to_owned())
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
