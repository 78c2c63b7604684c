//! Crew: worker processes of one peer that work at the same time.

use std::fmt::Display;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::server::Server;
use crate::Result;
use crate::kind::Kind;
use crate::process::Process;

/// How long hundreds of processes may take to start on a small machine.
const READY_WITHIN: Duration = Duration::from_secs(240);
/// How long after its window a worker may take to respond: a call that waits at its end is still served.
const ANSWER_WITHIN: Duration = Duration::from_secs(120);
/// How long work without a window may take: far beyond any machine we know.
const PATIENCE: Duration = Duration::from_secs(900);
/// How long a worker whose input has ended may take to release its locks.
const END_WITHIN: Duration = Duration::from_secs(10);

/// Options of a worker, by name.
pub(crate) type Options<'a> = [(&'a str, &'a dyn Display)];

/// Processes of one kind, all with the same arguments.
pub(crate) struct Crew {
    workers: Vec<Worker>,
    kind: Kind,
}

impl Crew {
    /// Starts one worker of ours that does this work on the etcd.
    pub(crate) fn ours(work: &str, server: &Server, options: &Options<'_>) -> Result<Self> {
        Self::at_work(Kind::Ours, 1, work, &server.endpoint(), options)
    }

    /// Starts this many workers, which do this work on the etcd at these URLs.
    pub(crate) fn at_work(
        kind: Kind,
        processes: usize,
        work: &str,
        endpoints: &str,
        options: &Options<'_>,
    ) -> Result<Self> {
        let place: [(&str, &dyn Display); 2] = [("work", &work), ("endpoint", &endpoints)];
        let options = place.iter().chain(options);
        let args = options.map(|(name, value)| format!("--{name}={value}"));
        Self::start(kind, processes, &args.collect::<Vec<_>>())
    }

    /// Starts this many workers and waits until all are ready.
    pub(crate) fn start(kind: Kind, processes: usize, args: &[String]) -> Result<Self> {
        let workers = (0..processes).map(|_| Worker::spawn(kind, args));
        let crew = Self { workers: workers.collect::<Result<_>>()?, kind };
        let deadline = Instant::now() + READY_WITHIN;
        for worker in &crew.workers {
            let line = worker.line(deadline)?;
            if line != "ready" {
                return Err(format!("{} says `{line}`, not `ready`", kind.title()));
            }
        }
        Ok(crew)
    }

    /// Makes a single worker do its work once; returns its result.
    pub(crate) fn single(&mut self) -> Result<Value> {
        self.order(Duration::ZERO)?;
        let answer = self.answers(PATIENCE)?.pop();
        answer.ok_or_else(|| "no worker has answered".to_owned())
    }

    /// Makes all workers begin now, and count after `lead`.
    pub(crate) fn order(&mut self, lead: Duration) -> Result<()> {
        let at = now()? + lead;
        for worker in &mut self.workers {
            let order = writeln!(worker.orders, "go {}", at.as_millis());
            order.map_err(|_| worker.gone())?;
        }
        Ok(())
    }

    pub(crate) fn answers(&self, expected: Duration) -> Result<Vec<Value>> {
        let deadline = Instant::now() + expected + ANSWER_WITHIN;
        let answers = self.workers.iter().map(|worker| {
            let line = worker.line(deadline)?;
            serde_json::from_str(&line)
                .map_err(|error| format!("{} says `{line}`: {error}", self.kind.title()))
        });
        answers.collect()
    }

    /// Returns the ids of its processes.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let ids = self.workers.iter().map(|worker| worker.process.pid());
        ids.map(|id| id.as_raw_nonzero().get().unsigned_abs()).collect()
    }

    /// Kills them, as a crash does; returns when, as time since 1970.
    pub(crate) fn kill(self) -> Result<Duration> {
        let at = now()?;
        for worker in self.workers {
            drop(worker.process); // first, because at the end of its input it would release its locks
        }
        Ok(at)
    }

    /// Ends them after they have released their locks.
    pub(crate) fn end(self) -> Result<()> {
        let mut processes: Vec<Process> =
            self.workers.into_iter().map(|worker| worker.process).collect();
        let deadline = Instant::now() + END_WITHIN;
        for process in &mut processes {
            let status = process.wait(deadline.saturating_duration_since(Instant::now()))?;
            if !status.success() {
                return Err(format!("a worker of {} ends with {status}", self.kind.title()));
            }
        }
        Ok(())
    }
}

/// Returns the time since 1970, on which all processes agree.
fn now() -> Result<Duration> {
    SystemTime::now().duration_since(UNIX_EPOCH).map_err(|error| error.to_string())
}

struct Worker {
    /// Input of the process, closed before waiting for its end.
    orders: ChildStdin,
    lines: Receiver<String>,
    process: Process,
    kind: Kind,
}

impl Worker {
    fn spawn(kind: Kind, args: &[String]) -> Result<Self> {
        let mut command = kind.command()?;
        command.args(["--peer", &kind.word()]).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::start(kind.title(), &mut command)?;
        let child = process.streams();
        let (Some(orders), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a worker has no standard streams".to_owned());
        };
        let (send, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(|line| line.ok()) {
                // Without a receiver the line does not matter.
                let _ = send.send(line);
            }
        });
        Ok(Self { orders, lines, process, kind })
    }

    fn line(&self, deadline: Instant) -> Result<String> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.lines.recv_timeout(left).map_err(|error| match error {
            RecvTimeoutError::Timeout => format!("{} does not answer", self.kind.title()),
            RecvTimeoutError::Disconnected => self.gone(),
        })
    }

    fn gone(&self) -> String {
        format!("a worker of {} has ended; its reason is above", self.kind.title())
    }
}

/// Returns a number in a worker's result.
pub(crate) fn number_of(answer: &Value, field: &str) -> Result<f64> {
    let number = answer.get(field).and_then(Value::as_f64);
    number.ok_or_else(|| format!("a worker's answer has no {field}: {answer}"))
}
