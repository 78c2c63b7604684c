//! `etcd-locked`: shows the locks that services hold and wait for, and takes one away from its holder.
//!
//! It reads what is in etcd; services need nothing for it.

mod connection;
mod contender;
mod cycle;
mod doctor;
mod failure;
mod kick;
mod ls;
mod options;
mod page;
mod time;
mod who;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use self::connection::Connection;
use self::failure::Failure;
use self::options::{Command, Options};

/// Exit status where nothing was found, or nothing was done.
const NOTHING: u8 = 1;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    // What is piped into `head` ends without a word.
    match run(Options::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(NOTHING),
        Err(failure) if failure.is_closed_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("etcd-locked: {failure}");
            ExitCode::from(failure.status())
        }
    }
}

/// Carries out a command; tells whether something was found or done.
async fn run(options: Options) -> Result<bool, Failure> {
    let connect = || Connection::new(&options.etcd);
    let json = options.json;
    match &options.command {
        Command::Ls(ls) => ls::ls(&connect()?, ls, json).await,
        Command::Who(who) => who::who(&connect()?, who, json).await,
        Command::Kick(kick) => kick::kick(&connect()?, kick, json).await,
        Command::Doctor(doctor) => doctor::doctor(&connect()?, doctor, json).await,
        Command::Completions { shell } => {
            let mut command = Options::command();
            clap_complete::generate(*shell, &mut command, "etcd-locked", &mut std::io::stdout());
            Ok(true)
        }
        Command::Man => {
            clap_mangen::Man::new(Options::command()).render(&mut std::io::stdout())?;
            Ok(true)
        }
    }
}
