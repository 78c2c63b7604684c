//! `cargo xtask …`: brings what this machine lacks, then runs tests, demo, examples, simulator and benchmarks.

mod apt;
mod bench;
mod book;
mod chaos;
mod cluster;
mod demo;
mod drills;
mod editor;
mod etcd;
mod examples;
mod exec;
mod faults;
mod fenced;
mod load;
mod messages;
mod ops;
mod options;
mod outside;
mod package;
mod peers;
mod protoc;
mod report;
mod roll;
mod say;
mod screens;
mod service;
mod sim;
mod sources;
mod suite;
mod version;
mod wheel;
mod workspace;

use std::process::ExitCode;

use etcd_locked_devkit::{http, process};

/// Result whose error is a message for the person at the terminal.
pub(crate) type Result<T, E = String> = std::result::Result<T, E>;

const USAGE: &str = "\
usage: cargo xtask <command>

  demo            three order services and a stock that is too small: without the lock, then with it
  test [args]     the whole test suite, on this machine's etcd, on a 3.5 and on an embedded one; args go to `cargo test`
  test --etcd newest [args]
                  the promises alone, on this one etcd
  drills [words]  what a real etcd does to us, on 3.4, 3.5 and sid's, as a table; writes tests/DRILLS.md. With words only the
                  drills with one in their name, and with --etcd on one etcd; to target/DRILLS.md
  drills --table  only the page's table of faults, from xtask/src/faults.txt
  examples [S4 …] the systems of the literature and the services, each example with its check, on real etcd; a line for each
  sim [--seeds N] random schedules (10000) of the production core against an etcd in process
  sim --seed N    one of them, every step in words
  sim --search    instead, every schedule of a few clients, as far as so many choices lead
  sim --write     all of it, and the bugs it must find; writes tests/sim/RESULTS.md
  chaos [--minutes N] [--mix NAME] [--seed S]
                  worker processes on a cluster of three, with faults of processes, members and connections; a checker judges
  chaos --judge FILE
                  judges a history that was kept
  chaos --peer go …
                  the same calls by a peer, as far as it has them: `go` (concurrency.Mutex), `aetcd`,
                  `lock-service` (etcd-client's), `etcdctl` (`etcdctl lock` with a command)
  chaos --write …
                  the same, and keeps the figures: writes tests/chaos/RESULTS.md and its plot
  exec [--times N]
                  `etcd-locked exec` and `etcdctl lock` with partitions, SIGSTOP and SIGKILL: does a command still run when the next
                  begins? N rounds of ours (60), 16 at once (--lanes); --write writes cli/EXEC.md
  fenced [--times N]
                  holders of a lock that are stopped in the middle of a transaction until the next has written: does one commit too
                  late? N rounds (24) on PostgreSQL and on SQLite, 16 at once (--lanes), and some without `fenced`; --write writes
                  tests/FENCED.md
  ops             dashboard and alerts of ops/ against a real Prometheus, which scrapes two processes of the axum shop while
                  faults are injected: does every query return data, and does the right alert fire?
  roll [--times N]
                  three replicas of the axum shop are restarted one after the other, under load, until N locks (100) were handed over
                  after SIGTERM: which answers do clients see, how long is a hand-over, what is left behind?
  screens         what `ls`, `who`, `top` and `doctor` show on a terminal, of clusters that are well and of others; writes
                  cli/SCREENS.md
  editor          what rust-analyzer shows of a crate of annotated functions: diagnostics, completions and definitions, also while a
                  statement is half typed
  bench [--quick] every row of performance, ours and the peers one after the other; writes benches/RESULTS.md and plots;
                  --quick in more than seven minutes and smaller, to target/bench
  bench --row B4  one of them; B18 is on a cluster of three with half a millisecond between any two, B19 counts what a release
                  sets off, B20 compares programs with and without spans and metrics
  bench --compile what the attribute costs in compile time and in bytes; writes benches/COMPILE.md
  book            builds the book, checks its links and runs its examples; brings mdBook
  package         packs what is published, and builds a crate and the command line from the packed form
  etcd [choice]   find or bring etcd, print the variables that tests read, as shell assignments; choice as for --etcd
  protoc [args]   the protoc that a crate carries (`xtask/protoc` prefers the machine's)

Missing tools are brought into target/tools; ETCD_BIN and ETCDCTL_BIN choose an etcd of your own.
`test`, `drills`, `chaos`, `exec`, `fenced`, `screens` and `bench` take --etcd: `newest` (Debian sid's), a version such as 3.4 or
3.5.16, or the path of an etcd.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((command, args)) = arguments.split_first() else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    let done = match command.as_str() {
        "demo" if args.is_empty() => process::end_all_on_interrupt().and_then(|()| demo::demo()),
        "test" => process::end_all_on_interrupt().and_then(|()| suite::test(args)),
        "drills" => process::end_all_on_interrupt().and_then(|()| drills::drills(args)),
        "examples" => process::end_all_on_interrupt().and_then(|()| examples::examples(args)),
        "sim" => process::end_all_on_interrupt().and_then(|()| sim::sim(args)),
        "ops" if args.is_empty() => process::end_all_on_interrupt().and_then(|()| ops::ops()),
        "roll" => process::end_all_on_interrupt().and_then(|()| roll::roll(args)),
        "exec" => process::end_all_on_interrupt().and_then(|()| exec::exec(args)),
        "editor" if args.is_empty() => {
            process::end_all_on_interrupt().and_then(|()| editor::editor())
        }
        "fenced" => process::end_all_on_interrupt().and_then(|()| fenced::fenced(args)),
        "screens" => process::end_all_on_interrupt().and_then(|()| screens::screens(args)),
        // What the commands of `exec` run.
        "pulse" => match exec::beat(args) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(message) => Err(message),
        },
        // The runner says the last line itself: it has the figures.
        "chaos" => match process::end_all_on_interrupt().and_then(|()| chaos::chaos(args)) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(message) => Err(message),
        },
        "bench" if args == ["--compile"] => {
            process::end_all_on_interrupt().and_then(|()| bench::compile())
        }
        "bench" => process::end_all_on_interrupt().and_then(|()| bench::speed(args)),
        "etcd" if args.len() <= 1 => etcd::locate(args.first().map(String::as_str)),
        "book" if args.is_empty() => process::end_all_on_interrupt().and_then(|()| book::book()),
        "package" if args.is_empty() => {
            process::end_all_on_interrupt().and_then(|()| package::package())
        }
        "protoc" => protoc::exec(args),
        "help" | "--help" | "-h" => Ok(USAGE.trim_end().to_owned()),
        _ => {
            eprint!(
                "xtask: cannot make sense of `{}`\n\n{USAGE}",
                arguments.join(" ")
            );
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(last_line) => {
            println!("{last_line}");
            ExitCode::SUCCESS
        }
        Err(_) if process::interrupted() => {
            eprintln!("{command}: interrupted");
            ExitCode::from(130)
        }
        Err(message) => {
            eprintln!("{command}: failed — {message}");
            ExitCode::FAILURE
        }
    }
}
