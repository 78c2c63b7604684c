//! Runs a program for as long as our standard input stays open, so that no test leaves a server behind, however it
//! ends: `guard <program> <argument>…` prints the program's process id and ends when the program does.

use std::io::{self, Read, Write};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

fn main() -> io::Result<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    let program = words
        .next()
        .ok_or_else(|| io::Error::other("usage: guard <program> <argument>…"))?;
    let mut child = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .spawn()?;
    println!("{}", child.id());
    io::stdout().flush()?;

    let (open, closed) = channel::<()>();
    thread::spawn(move || {
        let _open = open;
        let _ = io::stdin().read_to_end(&mut Vec::new());
    });
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(if status.success() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            });
        }
        if closed.recv_timeout(Duration::from_millis(20)) == Err(RecvTimeoutError::Disconnected) {
            child.kill()?;
            child.wait()?;
            return Ok(ExitCode::SUCCESS);
        }
    }
}
