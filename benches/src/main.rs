//! The benches: rows B1 to B10, B13 to B23, each our figure and the peers'.
//!
//! The program is the runner: it starts an etcd for each row, makes our workers and those of every peer measure in turn, and
//! prints and writes the results. As `bench worker …` it is such a worker; those in other languages are in `benches/peers`.

mod kind;
mod latency;
mod runner;
mod worker;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use etcd_locked_devkit::process;

/// Result whose error is a message for the person at the terminal.
pub(crate) type Result<T, E = String> = std::result::Result<T, E>;

/// Measures rows, ours and the peers' in turn. `cargo xtask bench` brings what the peers need, and sets the paths.
#[derive(Parser)]
#[command(name = "bench", args_conflicts_with_subcommands = true)]
struct Options {
    #[command(subcommand)]
    part: Option<Part>,
    #[command(flatten)]
    asked: runner::Asked,
}

#[derive(Subcommand)]
enum Part {
    /// List the peers whose workers these rows need, one per line
    Needs(runner::Asked),
    /// Work for one peer, on orders from standard input
    Worker(worker::Spec),
}

/// Parses a time in seconds.
fn seconds(text: &str) -> Result<Duration> {
    let seconds = text.parse().ok().map(Duration::try_from_secs_f64);
    let seconds = seconds.and_then(Result::ok).filter(|it| !it.is_zero());
    seconds.ok_or_else(|| "write seconds, such as 3 or 0.5".to_owned())
}

fn main() -> ExitCode {
    let options = Options::parse();
    let done = match options.part {
        Some(Part::Worker(spec)) => worker::main(spec).map_err(|error| error.to_string()),
        Some(Part::Needs(asked)) => {
            runner::needs(&asked);
            Ok(())
        }
        None => runner::main(&options.asked),
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn options_are_consistent_and_times_are_seconds() {
        Options::command().debug_assert();
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["some", "0", "-1", "1e99", "NaN"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
