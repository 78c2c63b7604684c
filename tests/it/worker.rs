//! Worker process: another process of the tests, which takes commands on its standard input.

use std::ffi::OsStr;
use std::process::Command;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use crate::limit::{PATIENCE, within};

/// Child process; killed when dropped.
#[derive(Debug)]
pub(crate) struct Worker {
    process: etcd_locked_devkit::Worker,
    lines: UnboundedReceiver<String>,
    /// Lines that [`says`](Self::says) has read.
    pub(crate) output: Vec<String>,
}

impl Worker {
    /// Starts a worker with exactly this environment.
    pub(crate) fn start<K: AsRef<OsStr>, V: AsRef<OsStr>>(
        environment: impl IntoIterator<Item = (K, V)>,
    ) -> Worker {
        let mut command = Command::new(env!("CARGO_BIN_EXE_worker"));
        command.env_clear().envs(environment);
        Self::of(command)
    }

    /// Starts another program that prints lines.
    pub(crate) fn of(command: Command) -> Worker {
        let (send, lines) = unbounded_channel();
        let process =
            etcd_locked_devkit::Worker::start(command, move |line| send.send(line).is_ok());
        Worker { process: process.expect("the worker starts"), lines, output: Vec::new() }
    }

    /// Sends one command, as a line.
    pub(crate) fn send(&mut self, command: &str) {
        self.process.send(command).expect("the worker listens");
    }

    /// Sends a command, and awaits its answer: a line that begins with this word. Returns the rest of that line.
    pub(crate) async fn asked(&mut self, command: &str, word: &str) -> String {
        self.send(command);
        self.says(word).await
    }

    /// Awaits the next line that begins with this word, and returns the rest of it. Skips other lines, but panics at
    /// `failed`, and at a `tallied` that is not awaited: a failed call has ended that tally.
    pub(crate) async fn says(&mut self, word: &str) -> String {
        self.says_within(PATIENCE, word).await
    }

    /// Awaits such a line under its own limit.
    pub(crate) async fn says_within(&mut self, limit: Duration, word: &str) -> String {
        let before = self.output.len();
        let said = timeout(limit, async {
            while let Some(line) = self.lines.recv().await {
                self.output.push(line.clone());
                let (first, rest) = line.split_once(' ').unwrap_or((&line, ""));
                if first == word {
                    return rest.to_owned();
                }
                assert!(
                    !["failed", "tallied"].contains(&first),
                    "a worker, asked for `{word}`, said `{line}`"
                );
            }
            panic!("a worker ended without a `{word}`; it said {:?}", &self.output[before..])
        });
        match said.await {
            Ok(rest) => rest,
            Err(_) => {
                let last = &self.output[before.max(self.output.len().saturating_sub(20))..];
                panic!("no `{word}` of a worker within {limit:?}; it said last {last:?}")
            }
        }
    }

    /// Returns how many of these lines have this code.
    pub(crate) fn logged(&self, code: &str) -> usize {
        self.output.iter().filter(|line| line.contains(&format!("code=\"{code}\""))).count()
    }

    /// Returns true if a line that was read contains this text.
    pub(crate) fn said(&self, text: &str) -> bool {
        self.output.iter().any(|line| line.contains(text))
    }

    /// Awaits the next line.
    pub(crate) async fn line(&mut self) -> String {
        within("a worker's next line", self.lines.recv()).await.expect("the worker has not ended")
    }

    /// Returns the lines that have arrived but have not been read.
    pub(crate) fn unread(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.lines.try_recv().ok()).collect()
    }

    /// Sends SIGSTOP, and awaits that it has stopped.
    pub(crate) fn stop(&self) {
        self.process.stop().expect("the worker runs");
    }

    /// Sends SIGCONT.
    pub(crate) fn cont(&self) {
        self.process.cont();
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        self.process.terminate();
    }

    /// Sends SIGKILL, and awaits the end.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("the worker can be killed");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }
}
