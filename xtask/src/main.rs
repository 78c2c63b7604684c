//! Command `cargo xtask`: brings the tools that this machine lacks, then runs tests, demo, examples, simulator and benchmarks.

mod api;
mod apt;
mod bench;
mod book;
mod chaos;
mod demo;
mod etcd;
mod examples;
mod go;
mod links;
mod options;
mod outside;
mod package;
mod peers;
mod protoc;
mod say;
mod service;
mod sim;
mod suite;
mod workspace;

use std::env;
use std::process::ExitCode;

use etcd_locked_devkit::{http, process};

use options::Args;

/// Result whose error is a message for the person at the terminal.
pub(crate) type Result<T, E = String> = std::result::Result<T, E>;

const HELP: &str = "\
Brings the tools that this machine lacks into target/tools, then runs tests, demo, examples, simulator and benchmarks.

cargo xtask demo               three processes oversell a stock without the lock, and not with it; then one is paused and one killed
                               during a sale. Runs on an etcd that is here (ETCD_BIN, target/tools, PATH), else on the embedded one
                               --built           takes the programs that `cargo xtask test` has built
cargo xtask test [ARGS…]       all tests on etcd 3.7, the promises on the embedded etcd, and the tests that depend on the
                               server on 3.4, 3.5 and 3.6. ARGS go to `cargo test`: `cargo xtask test fifo`
                               --etcd ETCD       only the promises, on that etcd
                               --every-version   fails if a version is not available
cargo xtask examples [ROW…]    the example systems and services, each with its checks
cargo xtask works-with         handlers of web frameworks, and attributes of other crates together with ours
cargo xtask sim [ARGS…]        10,000 random schedules of the production core. ARGS go to the simulator:
                               `--seeds N`, `--seed N`, `--search`; `--help` lists all
                               --write           plays, searches and finds mistakes; writes tests/sim/RESULTS.md
cargo xtask chaos [ARGS…]      a minute of faults on a cluster of three; a checker judges what the workers did. ARGS go to
                               the runner: `--minutes N`, `--mix NAME`, `--seed N`, `--only FAULT`; `--help` lists all
                               --etcd ETCD       3.7 by default
                               --peer NAME       tests go, aetcd, lock-service or etcdctl instead of the library
                               --built           uses the program that `cargo xtask test` has built
                               --write           writes tests/chaos/RESULTS.md
cargo xtask bench [ARGS…]      every row of performance, ours and the peers; writes benches/RESULTS.md and plots. ARGS go
                               to the runner: `--row B4`, `--quick`, `--peers go,plain`; `--help` has them all
                               --short           B1 to B6 and B22 in ten minutes; writes benches/SHORT.md
                               --pack FILE       packs that run for a machine without network and toolchain
                               --read FOLDER     takes in the results that a packed run has written
                               --etcd ETCD       that etcd
cargo xtask book               builds the book and the API docs; checks their links, and those of all Markdown files
cargo xtask api                compares the public API with runtime/API.txt. Needs the nightly toolchain
                               --write           accepts changes: writes runtime/API.txt
cargo xtask package            packs the published crates, checks the links of their READMEs, and builds a crate and the
                               command line tool from the packages
cargo xtask etcd [ETCD]        finds or brings etcd, and prints the variable that tests read, as a shell assignment
cargo xtask protoc ARGS…       runs the protoc that a crate carries; `xtask/protoc` prefers the machine's

ETCD is `newest`, a version such as 3.7 or 3.5.35, or the path of an etcd. ETCD_BIN chooses one of your own, ETCDCTL_BIN its etcdctl.";

fn main() -> ExitCode {
    let mut args = env::args_os().skip(1);
    let name = args.next().unwrap_or_default().to_string_lossy().into_owned();
    if name == "protoc" {
        let error = protoc::exec(args);
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    let args = args.map(|arg| arg.to_string_lossy().into_owned());
    match run(&name, Args::new(args.collect())) {
        Ok(last_line) => {
            println!("{last_line}");
            ExitCode::SUCCESS
        }
        Err(_) if process::interrupted() => {
            eprintln!("{name}: interrupted");
            ExitCode::from(130)
        }
        Err(message) => {
            eprintln!("{name}: failed — {message}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a command; returns the last line to print.
fn run(name: &str, mut args: Args) -> Result<String> {
    if !["etcd", "help"].contains(&name) {
        process::end_all_on_interrupt()?;
    }
    match name {
        "" | "help" | "--help" | "-h" => Ok(HELP.to_owned()),
        "demo" => {
            let built = args.flag("--built");
            args.end().and_then(|()| demo::demo(built))
        }
        "test" => suite::test(args),
        "examples" => examples::examples(&args.rest()),
        "works-with" => args.end().and_then(|()| outside::works_with()),
        "sim" => sim::sim(args.flag("--write"), &args.rest()),
        "chaos" => chaos::chaos(args),
        "bench" => bench::bench(args),
        "api" => api::api(args),
        "book" => args.end().and_then(|()| book::book()),
        "package" => args.end().and_then(|()| package::package()),
        "etcd" => {
            let choice = args.rest().first().map(|choice| choice.parse()).transpose()?;
            let etcd = etcd::find(choice.as_ref())?;
            Ok(format!("ETCD_BIN={}", etcd.server.display()))
        }
        other => Err(format!("unknown command `{other}`\n\n{HELP}")),
    }
}
