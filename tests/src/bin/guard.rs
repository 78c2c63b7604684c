//! Runs a program for as long as our standard input stays open, so that no test leaves a server behind, however it
//! ends: `guard <directory> <program> <argument>…` prints the program's process id and ends when the program does.
//! Unless the last word said to us was `keep`, the directory goes with it.

use std::fs;
use std::io::{self, Read, Write};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

fn main() -> io::Result<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    let usage = || io::Error::other("usage: guard <directory> <program> <argument>…");
    let directory = words.next().ok_or_else(usage)?;
    let program = words.next().ok_or_else(usage)?;
    let mut child = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .spawn()?;
    println!("{}", child.id());
    io::stdout().flush()?;

    let (told, orders) = channel();
    thread::spawn(move || {
        let mut said = String::new();
        let _ = io::stdin().read_to_string(&mut said);
        let _ = told.send(said);
    });
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(if status.success() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            });
        }
        if let Ok(said) = orders.recv_timeout(Duration::from_millis(20)) {
            child.kill()?;
            child.wait()?;
            // Killed without a word, the test process cannot clean up after itself.
            if said != "keep" {
                fs::remove_dir_all(&directory)?;
            }
            return Ok(ExitCode::SUCCESS);
        }
    }
}
