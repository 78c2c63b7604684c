//! Worker process: another process of the tests, which takes commands on its standard input.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::etcd::freeze;
use crate::limit::{PATIENCE, within, within_time};

/// A child process; killed when dropped.
#[derive(Debug)]
pub(crate) struct Worker {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: UnboundedReceiver<String>,
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
    pub(crate) fn of(mut command: Command) -> Worker {
        let name = command.get_program().to_owned();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{name:?} does not start: {error}"));
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (send, lines) = unbounded_channel();
        thread::spawn(move || {
            stdout
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| send.send(line))
        });
        Worker {
            stdin: child.stdin.take(),
            child,
            lines,
        }
    }

    /// Sends one command, as a line.
    pub(crate) fn send(&mut self, command: &str) {
        let stdin = self
            .stdin
            .as_mut()
            .expect("open until the worker is dropped");
        writeln!(stdin, "{command}").expect("the worker listens");
    }

    /// Awaits the next line that begins with this word, and returns the rest of it. Skips other lines.
    pub(crate) async fn says(&mut self, word: &str) -> String {
        self.says_within(PATIENCE, word).await
    }

    /// Awaits such a line under its own limit.
    pub(crate) async fn says_within(&mut self, limit: Duration, word: &str) -> String {
        within_time(limit, &format!("a worker's `{word}`"), async {
            while let Some(line) = self.lines.recv().await {
                let (first, rest) = line.split_once(' ').unwrap_or((&line, ""));
                if first == word {
                    return rest.to_owned();
                }
                assert!(
                    first != "failed",
                    "a worker, asked for `{word}`, said `{line}`"
                );
            }
            panic!("a worker ended without a `{word}`")
        })
        .await
    }

    /// Awaits the next line.
    pub(crate) async fn line(&mut self) -> String {
        within("a worker's next line", self.lines.recv())
            .await
            .expect("the worker has not ended")
    }

    /// Returns the lines that have arrived and not been read.
    pub(crate) fn unread(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.lines.try_recv().ok()).collect()
    }

    /// Sends SIGSTOP, and awaits that it has stopped.
    pub(crate) fn stop(&self) {
        freeze(Pid::from_child(&self.child));
    }

    /// Sends SIGCONT.
    pub(crate) fn cont(&self) {
        self.signal(Signal::CONT);
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Sends SIGKILL, and awaits the end.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("the worker can be killed");
        self.child.wait().expect("the worker is ours to wait for");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("the worker runs");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
