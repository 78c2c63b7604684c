//! `cargo xtask …`: brings what this machine lacks, then runs tests, demo, examples, simulator and benchmarks.

mod apt;
mod bench;
mod book;
mod chaos;
mod demo;
mod etcd;
mod examples;
mod go;
mod load;
mod messages;
mod options;
mod outside;
mod package;
mod peers;
mod protoc;
mod report;
mod say;
mod service;
mod sim;
mod suite;
mod workspace;

use std::process::ExitCode;

use clap::Parser;
use etcd_locked_devkit::{http, process};

use options::{Command, Options};

/// Result whose error is a message for the person at the terminal.
pub(crate) type Result<T, E = String> = std::result::Result<T, E>;

fn main() -> ExitCode {
    let command = Options::parse().command;
    // clap has found it: no option comes before it.
    let name = std::env::args().nth(1).unwrap_or_default();
    match carry_out(command) {
        Ok(last_line) => {
            last_line.iter().for_each(|line| println!("{line}"));
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

/// Carries out a command; returns the last line to print.
fn carry_out(command: Command) -> Result<Option<String>> {
    let starts_nothing = matches!(command, Command::Etcd { .. } | Command::Protoc { .. });
    if !starts_nothing {
        process::end_all_on_interrupt()?;
    }
    let last_line = match command {
        Command::Demo => demo::demo(),
        Command::Test { asked, every_version, args, own } => {
            suite::test(&asked, every_version, &suite::joined(args, own))
        }
        Command::Examples { rows } => examples::examples(&rows),
        Command::Sim { write, args } => sim::sim(write, &args),
        // The runner says the last line itself: it has the figures.
        Command::Chaos(options) => return chaos::chaos(&options).map(|()| None),
        Command::Bench(options) if options.compile => bench::compile(),
        Command::Bench(options) => bench::speed(&options),
        Command::Book => book::book(),
        Command::Package => package::package(),
        Command::Etcd { choice } => {
            let etcd = choice.as_ref().map_or_else(etcd::Etcd::find, etcd::Choice::find);
            etcd.map(|etcd| format!("ETCD_BIN={}", etcd.server.display()))
        }
        Command::Protoc { args } => protoc::exec(&args),
    };
    last_line.map(Some)
}
