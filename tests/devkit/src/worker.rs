//! Worker process: a program that takes commands on its standard input and prints lines.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use crate::Result;
use crate::process::{Process, Signal};

/// A worker process; killed when dropped.
#[derive(Debug)]
pub struct Worker {
    process: Process,
    stdin: Option<ChildStdin>,
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
        Ok(Self { process, stdin })
    }

    /// Sends one command, as a line.
    pub fn send(&mut self, command: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().ok_or("a worker without input")?;
        writeln!(stdin, "{command}").map_err(|error| format!("the worker does not listen: {error}"))
    }

    /// Sends SIGSTOP, and returns once every thread of it has stopped.
    pub fn stop(&mut self) -> Result<()> {
        self.process.stop()
    }

    /// Sends SIGCONT.
    pub fn cont(&mut self) {
        self.process.cont();
    }

    /// Sends SIGTERM.
    pub fn terminate(&mut self) {
        self.process.signal(Signal::TERM);
    }

    /// Sends SIGKILL, and waits for the end.
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill()
    }

    /// Waits until it ends by itself.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        self.process.wait(limit)
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.process.pid().as_raw_nonzero().get().unsigned_abs()
    }
}
