//! Worker process: a program that takes commands on its standard input and prints lines.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use crate::process::{Process, Signal};
use crate::{Result, lock, until};

/// Worker process; killed when dropped.
#[derive(Debug)]
pub struct Worker {
    process: Mutex<Process>,
    stdin: Mutex<ChildStdin>,
}

impl Worker {
    /// Starts a program, and passes each line of its output to the closure until that returns false.
    pub fn start(
        mut command: Command,
        mut line: impl FnMut(String) -> bool + Send + 'static,
    ) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::start(&name, &mut command)?;
        let streams = process.streams();
        let (stdin, stdout) = (streams.stdin.take(), streams.stdout.take());
        let lines = BufReader::new(stdout.ok_or("a worker without output")?).lines();
        thread::spawn(move || lines.map_while(std::result::Result::ok).all(&mut line));
        Ok(Self {
            stdin: Mutex::new(stdin.ok_or("a worker without input")?),
            process: Mutex::new(process),
        })
    }

    /// Sends one command, as a line.
    pub fn send(&self, command: &str) -> Result<()> {
        let mut stdin = lock(&self.stdin);
        writeln!(stdin, "{command}").map_err(|error| format!("the worker does not listen: {error}"))
    }

    /// Sends SIGSTOP, and returns after all of its threads have stopped.
    pub fn stop(&self) -> Result<()> {
        lock(&self.process).stop()
    }

    /// Sends SIGCONT.
    pub fn cont(&self) {
        lock(&self.process).cont();
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        lock(&self.process).signal(Signal::TERM);
    }

    /// Sends SIGKILL, and waits for the end.
    pub fn kill(&self) -> Result<()> {
        lock(&self.process).kill()
    }

    /// Waits until it ends by itself.
    pub fn wait(&self, limit: Duration) -> Result<ExitStatus> {
        let mut ended = None;
        until("a worker's end", limit, || {
            ended = lock(&self.process).ended().transpose();
            ended.is_some()
        })?;
        ended.unwrap_or_else(|| Err("the worker runs".to_owned()))
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        lock(&self.process).pid().as_raw_nonzero().get().unsigned_abs()
    }
}
