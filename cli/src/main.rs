//! Command line tool `etcd-locked`: shows which locks services hold and wait for, takes locks away, and runs commands under locks.
//!
//! It reads etcd only, so services need no configuration for it.

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
mod row;
mod top;
mod who;

use std::io;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use clap_mangen::Man;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use self::connection::Connection;
use self::failure::Failure;
use self::options::{Command, Options};
use self::output::{print_own, say};

fn main() -> ExitCode {
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) => {
            let _ = error.print();
            // 0 for help that the user requested.
            return ExitCode::from(match error.exit_code() {
                0 => 0,
                _ => Failure::Usage(String::new()).status(means_exec()),
            });
        }
    };
    match run(options) {
        Ok(status) => ExitCode::from(status),
        // Output piped into `head` ends silently. `doctor` has its own way, because its exit status is about all findings.
        Err(failure) if failure.is_closed_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            say(format_args!("etcd-locked: {failure}"));
            ExitCode::from(failure.status(means_exec()))
        }
    }
}

/// Returns true if the command is `exec`, even if its options are wrong.
fn means_exec() -> bool {
    let found = Options::command().ignore_errors(true).try_get_matches();
    found.is_ok_and(|found| found.subcommand_name() == Some("exec"))
}

/// Writes the man page: all commands with their options, and the sections that the options do not cover.
fn man() -> io::Result<Vec<u8>> {
    let (mut page, all) = (Vec::new(), Options::command());
    Man::new(all.clone()).render_title(&mut page)?;
    Man::new(all.clone()).render_name_section(&mut page)?;
    for command in [&all].into_iter().chain(all.get_subcommands().filter(|it| !it.is_hide_set())) {
        let (man, mut part) = (Man::new(command.clone()), Vec::new());
        man.render_synopsis_section(&mut part)?;
        man.render_description_section(&mut part)?;
        man.render_options_section(&mut part)?;
        let mut part = String::from_utf8_lossy(&part).into_owned();
        if !command.has_subcommands() {
            let name = command.get_name().to_uppercase();
            part = format!(".SH COMMAND {name}\n{}", part.replace(".SH ", ".SS "));
        }
        page.extend(part.into_bytes());
    }
    page.extend(include_bytes!("man.roff"));
    Ok(page)
}

/// Returns a channel that receives every later signal of these kinds.
fn signals(kinds: impl IntoIterator<Item = SignalKind>) -> io::Result<mpsc::Receiver<i32>> {
    let (all, signals) = mpsc::channel(16);
    for kind in kinds {
        let (mut each, all) = (signal(kind)?, all.clone());
        tokio::spawn(async move {
            while each.recv().await.is_some() && all.send(kind.as_raw_value()).await.is_ok() {}
        });
    }
    Ok(signals)
}

/// Runs a command, and returns the exit status.
#[tokio::main(flavor = "current_thread")]
async fn run(options: Options) -> Result<u8, Failure> {
    let connect = || Connection::new(&options.etcd, "etcd-locked", options.json);
    if options.json && !options.command.has_json() {
        return Err(Failure::Usage("--json works with ls, who, kick and doctor only".to_owned()));
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
            // Into memory first, because `generate` panics if it cannot write.
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut command, "etcd-locked", &mut script);
            print_own(&script)?;
            true
        }
        Command::Man => {
            print_own(&man()?)?;
            true
        }
        // These two block, and do not need a runtime.
        #[cfg(target_os = "linux")]
        Command::Guardian { grace_ns, command } => {
            exec::guardian(*grace_ns, command);
            true
        }
        #[cfg(target_os = "linux")]
        Command::Launcher { guardian, command } => return Ok(exec::launcher(*guardian, command)),
    };
    Ok(u8::from(!done)) // 1: nothing was found or done
}
