//! Worker processes of one peer, that work at the same time.

use std::fmt::Display;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::ValueEnum;
use serde_json::Value;

use super::server::Server;
use crate::Result;
use crate::latency::Latency;
use crate::process::Process;

/// How long hundreds of processes may take to start on a small machine.
const READY_WITHIN: Duration = Duration::from_secs(240);
/// How long after its window a worker may take to answer: a call that waits at its end is still served.
const ANSWER_WITHIN: Duration = Duration::from_secs(120);
/// How long a worker whose input has ended may take to give back what it has.
const END_WITHIN: Duration = Duration::from_secs(10);

/// Whose worker it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Kind {
    Ours,
    /// Ours, released in the background.
    Background,
    Go,
    Plain,
    /// By hand, where processes wait for each other.
    Watching,
    Service,
    #[value(name = "aetcd")]
    Python,
    /// The limit: bare keys, put and deleted.
    Raw,
    /// The same with a lease and a record.
    Stored,
    /// The same with a range and compares: our transactions, without us.
    Guarded,
    /// Tasks that wait for a mutex of tokio's.
    Mutex,
    /// Ours on the embedded etcd, without spans and metrics.
    Bare,
    /// The same with both, without a subscriber or a recorder.
    Unobserved,
    /// The same with a subscriber and a recorder that do nothing.
    Observed,
    /// Transactions, fenced and not.
    Fenced,
}

impl Kind {
    /// As workers and files have it.
    pub(crate) fn word(self) -> String {
        let word = self.to_possible_value();
        word.map_or_else(String::new, |word| word.get_name().to_owned())
    }

    /// As the report has it.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Ours => "etcd-locked",
            Self::Background => "etcd-locked, released in the background",
            Self::Go => "Go `concurrency`",
            Self::Plain => "etcd-client by hand",
            Self::Watching => "etcd-client by hand, with an open watch",
            Self::Service => "etcd's lock service",
            Self::Python => "Python `aetcd`",
            Self::Raw => "raw put/delete bundles",
            Self::Stored => "raw bundles with lease and record",
            Self::Guarded => "our transactions by hand",
            Self::Mutex => "tokio's mutex",
            Self::Bare => "without spans and metrics",
            Self::Unobserved => "spans and metrics, unobserved",
            Self::Observed => "spans and metrics, observed",
            Self::Fenced => "fenced transactions",
        }
    }

    fn command(self) -> Result<Command> {
        match self {
            Self::Go => Ok(Command::new(built("BENCH_GO_PEER", "the Go peer")?)),
            Self::Python => {
                let packages = built("BENCH_PYTHON_PACKAGES", "a folder with aetcd")?;
                let python = std::env::var_os("BENCH_PYTHON").unwrap_or_else(|| "python3".into());
                let mut command = Command::new(python);
                command
                    .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/python/worker.py"))
                    .env("PYTHONPATH", packages);
                Ok(command)
            }
            Self::Bare => {
                let program = built("BENCH_BARE", "a program without spans and metrics")?;
                Ok(Command::new(program))
            }
            Self::Unobserved | Self::Observed => {
                let program = built("BENCH_OBSERVED", "a program with spans and metrics")?;
                Ok(Command::new(program))
            }
            Self::Fenced => {
                let program = built("BENCH_FENCED", "a program with fenced transactions")?;
                Ok(Command::new(program))
            }
            _ => {
                let own = std::env::current_exe().map_err(|error| error.to_string())?;
                let mut command = Command::new(own);
                command.arg("worker");
                Ok(command)
            }
        }
    }

    /// Whether this peer can run here at all; why not.
    pub(crate) fn check(self) -> Result<()> {
        self.command().map(drop)
    }
}

/// What `cargo xtask bench` has made, by the variable that names it.
fn built(variable: &str, what: &str) -> Result<PathBuf> {
    std::env::var_os(variable)
        .map(PathBuf::from)
        .filter(|path| path.exists())
        .ok_or_else(|| format!("{variable} does not name {what}; `cargo xtask bench` makes it"))
}

/// Processes of one kind, all with the same arguments.
pub(crate) struct Crew {
    workers: Vec<Worker>,
    kind: Kind,
}

impl Crew {
    /// Starts one of ours that does this work on the etcd.
    pub(crate) fn ours(
        work: &str,
        server: &Server,
        options: &[(&str, &dyn Display)],
    ) -> Result<Self> {
        Self::at_work(Kind::Ours, 1, work, &server.endpoint(), options)
    }

    /// Starts so many that do this work on the etcd at these URLs.
    pub(crate) fn at_work(
        kind: Kind,
        processes: usize,
        work: &str,
        endpoints: &str,
        options: &[(&str, &dyn Display)],
    ) -> Result<Self> {
        let place: [(&str, &dyn Display); 2] = [("work", &work), ("endpoint", &endpoints)];
        let options = place.iter().chain(options);
        let args = options.map(|(name, value)| format!("--{name}={value}"));
        Self::start(kind, processes, &args.collect::<Vec<_>>())
    }

    /// Starts so many and waits until all are ready.
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

    /// Has all begin now, and count from `lead` on; what each answers.
    pub(crate) fn round(&mut self, lead: Duration, window: Duration) -> Result<Vec<Value>> {
        self.order(lead)?;
        self.answers(lead + window)
    }

    /// The same of a single worker.
    pub(crate) fn single(&mut self, lead: Duration, window: Duration) -> Result<Value> {
        let mut answers = self.round(lead, window)?;
        answers.pop().ok_or_else(|| "no worker has answered".to_owned())
    }

    pub(crate) fn order(&mut self, lead: Duration) -> Result<()> {
        let at = now()? + lead;
        for worker in &mut self.workers {
            worker.order(&format!("go {}", at.as_millis()))?;
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

    /// The ids of its processes.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let ids = self.workers.iter().map(|worker| worker.process.pid());
        ids.map(|id| id.as_raw_nonzero().get().unsigned_abs()).collect()
    }

    /// Ends them without asking, as a crash does; when.
    pub(crate) fn kill(self) -> Result<Duration> {
        let at = now()?;
        for worker in self.workers {
            drop(worker.process); // first: an end of its input would have it give back what it has
        }
        Ok(at)
    }

    /// Lets them give back what they have.
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

/// Since 1970, as all processes have it.
pub(crate) fn now() -> Result<Duration> {
    SystemTime::now().duration_since(UNIX_EPOCH).map_err(|error| error.to_string())
}

struct Worker {
    /// Closed before the process is waited for.
    orders: ChildStdin,
    lines: Receiver<String>,
    process: Process,
    kind: Kind,
}

impl Worker {
    fn spawn(kind: Kind, args: &[String]) -> Result<Self> {
        let mut command = kind.command()?;
        command
            .args(["--peer", &kind.word()])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = Process::start(kind.title(), &mut command)?;
        let child = process.streams();
        let (Some(orders), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a worker has no standard streams".to_owned());
        };
        let (send, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(|line| line.ok()) {
                // Without a receiver the line is not needed.
                let _ = send.send(line);
            }
        });
        Ok(Self { orders, lines, process, kind })
    }

    fn order(&mut self, line: &str) -> Result<()> {
        writeln!(self.orders, "{line}").map_err(|_| self.gone())
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

/// A number in a worker's answer.
pub(crate) fn number_of(answer: &Value, field: &str) -> Result<f64> {
    let number = answer.get(field).and_then(Value::as_f64);
    number.ok_or_else(|| format!("a worker's answer has no {field}: {answer}"))
}

/// What all workers of a round have done together.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// Calls a second, in the window.
    pub(crate) rate: f64,
    /// All calls.
    pub(crate) total: u64,
    /// What witnesses in the processes have seen of them.
    pub(crate) witnessed: u64,
    /// Calls that came after one of another process.
    pub(crate) changes: u64,
    pub(crate) latency: Latency,
}

impl Done {
    pub(crate) fn of(answers: &[Value]) -> Result<Self> {
        let mut done = Self::default();
        for answer in answers {
            done.add(answer)
                .ok_or_else(|| format!("a worker's answer lacks something: {answer}"))?;
        }
        Ok(done)
    }

    fn add(&mut self, answer: &Value) -> Option<()> {
        let seconds = answer.get("seconds")?.as_f64().filter(|s| *s > 0.0)?;
        self.rate += answer.get("count")?.as_f64()? / seconds;
        self.total += answer.get("total")?.as_u64()?;
        self.witnessed += answer.get("witnessed")?.as_u64()?;
        self.changes += answer.get("changes")?.as_u64()?;
        self.latency.add(&Latency::from_json(answer.get("latency")?.as_object()?)?);
        Some(())
    }
}

/// A witness's file: for each name a counter of eight bytes, and who was there last in as many.
pub(crate) struct Witness(tempfile::NamedTempFile);

impl Witness {
    pub(crate) fn new(names: usize) -> Result<Self> {
        let io = |error: std::io::Error| format!("no file for the witness: {error}");
        let file = tempfile::NamedTempFile::new().map_err(io)?;
        file.as_file().set_len(16 * names as u64).map_err(io)?;
        Ok(Self(file))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn seen(&self) -> Result<u64> {
        let counters = fs::read(self.path()).map_err(|error| format!("the witness: {error}"))?;
        let (counters, _) = counters.as_chunks();
        Ok(counters.iter().step_by(2).map(|c| u64::from_le_bytes(*c)).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_add_up() {
        let answer = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        let one = answer(
            r#"{"count":10,"total":12,"seconds":2.0,"latency":{"300":10},"witnessed":12,"changes":3}"#,
        );
        let other = answer(
            r#"{"count":2,"total":2,"seconds":2,"latency":{"300":1,"310":1},"witnessed":2,"changes":1}"#,
        );
        let done = Done::of(&[one, other]).unwrap();
        assert_eq!((done.rate, done.total, done.witnessed), (6.0, 14, 14));
        assert_eq!(done.latency.count(), 12);
        assert_eq!(done.changes, 4);
        assert!(Done::of(&[answer(r#"{"count":1}"#)]).is_err());
    }
}
