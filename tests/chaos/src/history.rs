//! History of a run: what callers, bodies, workers and faults did, with times of the clock that all processes share.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::options::{Who, word};
use crate::schedule::Kind;

/// Event and its time, in nanoseconds since boot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Event {
    pub(crate) at: u64,
    #[serde(flatten)]
    pub(crate) what: What,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum What {
    /// First event: what is played.
    Run(Run),
    /// A worker process has started, in a slot of the crew.
    Started { process: u32, slot: u32 },
    /// A worker got SIGSTOP.
    Stopped { process: u32 },
    /// A worker is about to get SIGCONT.
    Continued { process: u32 },
    /// A worker is about to get SIGKILL.
    Killed { process: u32 },
    /// A worker has ended: it failed by itself, unless `well`. `hung` means that it did not end when told to, so it was given up.
    Exited { process: u32, well: bool, hung: bool },
    /// A worker reported something.
    Said { process: u32, said: Said },
    /// The register responded to a write.
    Written { process: u32, call: u64, name: String, token: i64, accepted: bool },
    /// A fault is about to begin.
    FaultBegun(FaultBegun),
    /// A fault is about to be healed: after this it may be gone.
    FaultEnding { fault: u32 },
    /// A fault is gone.
    FaultHealed { fault: u32 },
    /// A fault had no target, so it does not count.
    FaultMissed { fault: u32 },
    /// etcd is about to lose its history, by a fault that has begun.
    Rewound { fault: u32 },
    /// The machine did not run the witness since that time.
    Stalled { since: u64 },
    /// No member of etcd has responded to the runner since that time.
    Silent { since: u64 },
    /// The workers are told to end; no call is made after this.
    Draining,
    /// Keys below names that etcd still has when all calls have ended, and no worker has revoked its leases.
    Idle { keys: Vec<String> },
    /// Keys below the prefix, and leases, that etcd still has when all workers have ended.
    Left { keys: Vec<String> },
    /// The run is over.
    Over,
    /// The run has ended early.
    Failed { error: String },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FaultBegun {
    pub(crate) fault: u32,
    pub(crate) kind: Kind,
    pub(crate) target: String,
    /// Names whose keys an operator removes or puts.
    pub(crate) names: Vec<String>,
    /// Slot of the worker that it targets.
    pub(crate) worker: Option<u32>,
    /// Key, or a key of the lease, that an operator takes.
    pub(crate) taken: Option<Taken>,
}

/// Contender's key that an operator takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Taken {
    /// Process that put it, if its record shows that.
    pub(crate) owner: Option<u32>,
    /// Number of older keys of its name. With exclusive calls, the oldest key is the holder's.
    pub(crate) older: usize,
}

/// What is played, according to the command line.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) seed: u64,
    pub(crate) mix: String,
    pub(crate) etcd: String,
    pub(crate) who: Who,
    pub(crate) seconds: u64,
    /// Kinds of faults; empty for all.
    pub(crate) only: Vec<String>,
    /// Version of the peer's client.
    pub(crate) client: String,
    /// Commit of the sources.
    pub(crate) commit: String,
    /// When it began, in seconds since 1970.
    pub(crate) started: u64,
}

impl Run {
    /// Returns the name of its files, which is unique to this run.
    pub(crate) fn id(&self) -> String {
        let mut id = format!("{}-{}-{}-{}", word(self.who), self.etcd, self.mix, self.seed);
        for kind in &self.only {
            id += &format!("-{}", kind.replace([' ', '/'], "_"));
        }
        id + &format!("-{}-{}", self.commit, self.started)
    }
}

/// Report of a worker: one line of JSON on its connection to the witness.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Said {
    /// A call is about to be polled for the first time.
    Asked { call: u64, asked: Asked },
    /// A body is polled for the first time. The worker waits for the witness before the body continues.
    Begun { call: u64, held: bool, tokens: Vec<(String, i64)> },
    /// A body is polled. `held` is what the guard says, after the clock was read.
    Polled { call: u64, held: bool },
    /// A body writes to the register of a name. `held` is as with a poll; absent if it was already reported for this poll.
    Write { call: u64, name: String, token: i64, held: Option<bool> },
    /// A body has ended; `held` is what the guard says at that moment.
    Ended { call: u64, held: bool, how: Ending },
    /// A call has returned, or was dropped.
    Returned { call: u64, result: Outcome },
    /// A log line of the library, a warning or an error.
    Logged { level: String, text: String },
    /// The machine did not run the worker since that time, or it was stopped by SIGSTOP.
    Stalled { since: u64 },
    /// All calls have ended, after the worker was told to end.
    Idle,
    /// A shutdown is over.
    Drained { left: usize, leases: usize },
}

/// Request of a call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Asked {
    pub(crate) kind: String,
    pub(crate) names: Vec<String>,
    pub(crate) mode: Mode,
    /// Limit of the wait in milliseconds; `None` if it waits until it is served.
    pub(crate) wait: Option<u64>,
    /// TTL of the lease in milliseconds.
    pub(crate) ttl: u64,
    /// Least time for which the name stays locked, in milliseconds.
    pub(crate) min_hold: u64,
    /// Call of the same process in whose body it is made.
    pub(crate) under: Option<u64>,
}

/// Mode in which a call shares its names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    #[default]
    Exclusive,
    Shared,
    Permits(u16),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ending {
    /// It returned.
    Done,
    /// It was dropped at an await.
    Dropped,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Done,
    /// The lock was held by others, and not acquired within the limit.
    Busy,
    /// The lock was lost, with this cause.
    Lost(String),
    Deadlock,
    /// etcd could not be reached, or refused.
    Refused(String),
    /// The caller dropped the call.
    Dropped,
    /// An error that no fault explains.
    Wrong(String),
}

/// Writes a history as lines of JSON, compressed by `gzip`.
pub(crate) fn write(file: &Path, events: &[Event]) -> io::Result<()> {
    let mut gzip =
        Command::new("gzip").arg("-c").stdin(Stdio::piped()).stdout(File::create(file)?).spawn()?;
    if let Some(stdin) = gzip.stdin.take() {
        let mut lines = BufWriter::new(stdin);
        for event in events {
            serde_json::to_writer(&mut lines, event)?;
            lines.write_all(b"\n")?;
        }
        lines.flush()?;
    }
    ended(&mut gzip)
}

/// Reads a history, which may be compressed.
pub(crate) fn read(file: &Path) -> io::Result<Vec<Event>> {
    // A file that is not compressed comes out as it is.
    let mut gzip = Command::new("gzip").args(["-dcf"]).arg(file).stdout(Stdio::piped()).spawn()?;
    let mut events = Vec::new();
    if let Some(stdout) = gzip.stdout.take() {
        for line in BufReader::new(stdout).lines() {
            events.push(serde_json::from_str(&line?)?);
        }
    }
    ended(&mut gzip).map(|()| events)
}

fn ended(gzip: &mut Child) -> io::Result<()> {
    match gzip.wait()?.success() {
        true => Ok(()),
        false => Err(io::Error::other("gzip has failed")),
    }
}
