//! `etcd-locked`: shows the locks that services hold and wait for, takes one away from its holder, and runs commands under locks.
//!
//! It reads what is in etcd; services need nothing for it.

mod connection;
mod contender;
mod cycle;
mod doctor;
#[cfg(target_os = "linux")]
mod exec;
mod failure;
mod kick;
mod ls;
mod options;
mod page;
mod paragraph;
mod time;
mod top;
mod who;

use std::fmt::Arguments;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use self::connection::Connection;
use self::failure::Failure;
use self::options::{Command, Options};

/// Exit status where nothing was found, or nothing was done.
const NOTHING: u8 = 1;

fn main() -> ExitCode {
    let options = Options::parse();
    // These two need no runtime.
    #[cfg(target_os = "linux")]
    match &options.command {
        Command::Guardian { grace_ns, command } => {
            return match exec::guardian(*grace_ns, command) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    say(format_args!("etcd-locked: the guardian of a command fails: {error}"));
                    ExitCode::FAILURE
                }
            };
        }
        Command::Launcher { guardian, command } => {
            return ExitCode::from(exec::launcher(*guardian, command));
        }
        _ => {}
    }
    match run(options) {
        Ok(status) => ExitCode::from(status),
        // What is piped into `head` ends without a word. A command whose status says more does not end by it: see `doctor`.
        Err(failure) if failure.is_closed_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            say(format_args!("etcd-locked: {failure}"));
            ExitCode::from(failure.status())
        }
    }
}

/// Says something on standard error, where there is one: a closed pipe is no reason to panic.
fn say(text: Arguments<'_>) {
    // One write, so that no line of a command comes in between.
    let _ = io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// Carries out a command, and returns the exit status.
#[tokio::main(flavor = "current_thread")]
async fn run(options: Options) -> Result<u8, Failure> {
    let connect = || Connection::new(&options.etcd, "etcd-locked", options.json);
    if options.json && !options.command.has_json() {
        return Err(Failure::Usage("--json is for ls, who, kick and doctor".to_owned()));
    }
    let done = match &options.command {
        Command::Ls(ls) => ls::ls(&connect()?, ls).await?,
        Command::Who { name } => who::who(&connect()?, name).await?,
        Command::Kick(kick) => kick::kick(&connect()?, kick).await?,
        Command::Top(top) => top::top(&connect()?, top).await?,
        Command::Doctor { probes } => doctor::doctor(&connect()?, *probes).await?,
        #[cfg(target_os = "linux")]
        Command::Exec(exec) => return exec::exec(&options.etcd, exec).await,
        Command::Completions { shell } => {
            let mut command = Options::command();
            // Made first: what cannot be written is a panic there.
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut command, "etcd-locked", &mut script);
            io::stdout().write_all(&script)?;
            true
        }
        Command::Man => {
            clap_mangen::Man::new(Options::command()).render(&mut io::stdout())?;
            true
        }
        // They are carried out without a runtime.
        #[cfg(target_os = "linux")]
        Command::Guardian { .. } | Command::Launcher { .. } => false,
    };
    Ok(if done { 0 } else { NOTHING })
}
