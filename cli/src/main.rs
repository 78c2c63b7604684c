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
mod output;
mod page;
mod top;
mod who;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use self::connection::Connection;
use self::failure::Failure;
use self::options::{Command, Options};
use self::output::{print_own, say};

fn main() -> ExitCode {
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) => {
            let _ = error.print();
            // 0 for help that was asked for.
            return ExitCode::from(match error.exit_code() {
                0 => 0,
                _ => Failure::Usage(String::new()).status(means_exec()),
            });
        }
    };
    // These two need no runtime.
    #[cfg(target_os = "linux")]
    match &options.command {
        Command::Guardian { grace_ns, command } => {
            exec::guardian(*grace_ns, command);
            return ExitCode::SUCCESS;
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
            ExitCode::from(failure.status(means_exec()))
        }
    }
}

/// Whether the command is `exec`, also where its options are wrong.
fn means_exec() -> bool {
    let found = Options::command().ignore_errors(true).try_get_matches();
    found.is_ok_and(|found| found.subcommand_name() == Some("exec"))
}

/// Carries out a command, and returns the exit status.
#[tokio::main(flavor = "current_thread")]
async fn run(options: Options) -> Result<u8, Failure> {
    let connect = || Connection::new(&options.etcd, "etcd-locked", options.json);
    if options.json && !options.command.has_json() {
        return Err(Failure::Usage("--json is for ls, who, kick and doctor".to_owned()));
    }
    let done = match &options.command {
        Command::Ls(ls) => {
            ls::ls(&connect()?, ls).await?;
            true
        }
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
            print_own(&script)?;
            true
        }
        Command::Man => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Options::command()).render(&mut page)?;
            print_own(&page)?;
            true
        }
        // They are carried out without a runtime.
        #[cfg(target_os = "linux")]
        Command::Guardian { .. } | Command::Launcher { .. } => false,
    };
    Ok(u8::from(!done)) // 1: nothing was found, or done
}
