//! Guard process: runs a program as long as its standard input stays open, so that no test leaves a server behind.
//!
//! `guard <directory> <program> <argument>…` prints the program's process id and ends when the program does. When its
//! input ends, it kills the program and removes the directory, unless the input was `keep`.

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

    let (send, ended) = channel();
    thread::spawn(move || {
        let mut input = String::new();
        let _ = io::stdin().read_to_string(&mut input);
        let _ = send.send(input);
    });
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(if status.success() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            });
        }
        if let Ok(input) = ended.recv_timeout(Duration::from_millis(20)) {
            child.kill()?;
            child.wait()?;
            // A test process that was killed cannot clean up after itself.
            if input != "keep" {
                fs::remove_dir_all(&directory)?;
            }
            return Ok(ExitCode::SUCCESS);
        }
    }
}
