//! The benches: rows B1 to B10 and B13 to B21, each our figure and the peers'.
//!
//! Alone it is the runner: it starts an etcd for each row, has workers of ours and of every peer measure in turn, and prints
//! and writes what came out. As `bench worker …` it is such a worker; those in other languages are in `benches/peers`.

mod embedded;
mod fenced;
mod latency;
mod runner;
mod worker;

use std::process::ExitCode;

use etcd_locked_devkit::process;

/// Every failure of the runner is a message for the person at the terminal.
pub(crate) type Result<T, E = String> = std::result::Result<T, E>;

fn main() -> ExitCode {
    let line: Vec<String> = std::env::args().skip(1).collect();
    let done = match line.split_first() {
        Some((word, args)) if word == "worker" => worker::main(args).map_err(|e| e.to_string()),
        Some((word, args)) if word == "needs" => runner::needs(args),
        _ => runner::main(&line),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) if process::interrupted() => {
            eprintln!("bench: interrupted");
            ExitCode::from(130)
        }
        Err(message) => {
            eprintln!("bench: failed — {message}");
            ExitCode::FAILURE
        }
    }
}
