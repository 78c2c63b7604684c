//! Round of the show: a holder is stopped in its transaction until its lease is over, another one writes, the first goes on.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use etcd_locked_devkit::Worker;

use crate::Result;

/// What the first holder is called in a ledger.
const FIRST: &str = "first";

/// Limit of each step: longer than a lease, and than a database is waited for.
const PATIENCE: Duration = Duration::from_secs(90);

/// Time between two renewals of a lease with a TTL of 2 s, about.
const RENEWAL: Duration = Duration::from_millis(600);

/// How long the next holder is given where the database may have it wait for the first.
const WAITED: Duration = Duration::from_millis(300);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Database {
    Postgres,
    Sqlite,
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Postgres => "PostgreSQL",
            Self::Sqlite => "SQLite",
        })
    }
}

/// Where the first holder is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    BeforeFence,
    Written,
    Limited,
    Anywhere,
}

impl Step {
    fn word(self) -> &'static str {
        match self {
            Self::BeforeFence => "unfenced",
            Self::Written => "written",
            Self::Limited => "limited",
            Self::Anywhere => "none",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BeforeFence => "before the fence",
            Self::Written => "before its commit",
            Self::Limited => "before its commit, with a limit",
            Self::Anywhere => "anywhere",
        })
    }
}

/// How the first holder's body runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Body {
    Dropped,
    Polled,
    GoesOn,
}

impl Body {
    fn word(self) -> &'static str {
        match self {
            Self::Dropped => "dropped",
            Self::Polled => "polled",
            Self::GoesOn => "on",
        }
    }
}

impl fmt::Display for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dropped => "awaits",
            Self::Polled => "in a poll",
            Self::GoesOn => "goes on",
        })
    }
}

/// A round that is to be played.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Job {
    /// False: a control round, without `fenced`.
    pub(super) fenced: bool,
    pub(super) database: Database,
    pub(super) step: Step,
    pub(super) body: Body,
}

/// What a holder was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Committed,
    /// `LockError::Lost`, by the gate: what the body was about then is not known to its caller.
    Dropped,
    /// `LockError::Lost`, by the fence.
    Lost,
    /// An error of the database.
    DatabaseFailed,
}

impl End {
    /// Reads what a worker says after `done`.
    fn parse(text: &str) -> Result<Self> {
        match text.split(' ').next() {
            Some("committed") => Ok(Self::Committed),
            Some("dropped") => Ok(Self::Dropped),
            Some("lost") => Ok(Self::Lost),
            Some("database") => Ok(Self::DatabaseFailed),
            _ => Err(format!("a holder ended with `{text}`")),
        }
    }
}

/// A committed write: whose it was, and with which token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Write {
    pub(super) is_first: bool,
    pub(super) token: i64,
}

/// What the holders of a round were told, and what the first one's database says where that is a file of its own.
#[derive(Debug)]
pub(super) struct Played {
    pub(super) name: String,
    pub(super) first: End,
    pub(super) next: End,
    /// In the order of the commits; `None` for PostgreSQL, whose ledger is read at the end.
    pub(super) ledger: Option<Vec<Write>>,
}

/// Why a round was not played to its end.
#[derive(Debug)]
pub(super) enum Spoilt {
    /// The machine was too slow: a holder lost its lock where nothing had been done to it.
    Slow,
    Failed(String),
}

impl From<String> for Spoilt {
    fn from(error: String) -> Self {
        Self::Failed(error)
    }
}

/// Where the workers find etcd and the databases.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) program: &'a Path,
    pub(super) endpoint: &'a str,
    pub(super) postgres: &'a str,
    pub(super) folder: &'a Path,
}

impl Place<'_> {
    pub(super) fn holder(&self) -> Result<Holder> {
        let mut command = Command::new(self.program);
        command.env("ETCD_LOCKED_ENDPOINTS", self.endpoint);
        let (send, lines) = channel();
        let worker = Worker::start(command, move |line| send.send(line).is_ok())?;
        Ok(Holder { worker, lines })
    }

    /// The database of a round. About half of SQLite's have a write-ahead log, by the number's bits: kinds come at regular distances.
    fn database(&self, job: Job, label: &str, number: usize) -> String {
        let file = |kind| self.folder.join(format!("{label}.{kind}"));
        let file: PathBuf = match job.database {
            Database::Postgres => return self.postgres.to_owned(),
            Database::Sqlite if number.count_ones().is_multiple_of(2) => file("wal"),
            Database::Sqlite => file("journal"),
        };
        format!("sqlite:{}", file.display())
    }
}

/// A worker process.
#[derive(Debug)]
pub(super) struct Holder {
    worker: Worker,
    lines: Receiver<String>,
}

impl Holder {
    fn send(&self, command: &str) -> Result<()> {
        self.worker.send(command)
    }

    /// Returns what the worker says next, if it begins with this word: the rest of its line. `None`: nothing within the limit.
    fn says_within(&self, limit: Duration, word: &str) -> Result<Option<String>> {
        let line = match self.lines.recv_timeout(limit) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => return Ok(None),
            Err(RecvTimeoutError::Disconnected) => return Err("a holder has ended".to_owned()),
        };
        match line.strip_prefix(word) {
            Some(rest) => Ok(Some(rest.trim_start().to_owned())),
            None => Err(format!("a holder says `{line}`, not `{word}`")),
        }
    }

    fn says(&self, word: &str) -> Result<String> {
        let said = self.says_within(PATIENCE, word)?;
        said.ok_or_else(|| format!("a holder does not say `{word}` within {PATIENCE:?}"))
    }

    /// Makes the tables of a database, and returns its version.
    pub(super) fn prepare(&self, database: &str) -> Result<String> {
        self.send(&format!("prepare {database}"))?;
        let version = self.says("prepared")?;
        // A distribution adds its own after a blank.
        Ok(version.split(' ').next().unwrap_or_default().to_owned())
    }

    /// Reads what was committed, in the order of the commits: each with the name of its round.
    pub(super) fn ledger(&self, database: &str) -> Result<Vec<(String, Write)>> {
        self.send(&format!("ledger {database}"))?;
        let mut all = Vec::new();
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.map_err(|error| format!("the ledger: {error}"))?;
            if line == "read" {
                return Ok(all);
            }
            let words: Vec<_> = line.split(' ').collect();
            let ["paid", name, holder, token] = words[..] else {
                return Err(format!("the ledger says `{line}`"));
            };
            let token = token.parse().map_err(|error| format!("{line}: {error}"))?;
            let is_first = holder == FIRST;
            all.push((name.to_owned(), Write { is_first, token }));
        }
    }

    fn is_silent(&self) -> bool {
        self.lines.try_recv().is_err()
    }
}

/// Two processes, of which each is the first holder in turn.
#[derive(Debug)]
pub(super) struct Lane<'a> {
    place: Place<'a>,
    holders: [Holder; 2],
}

impl<'a> Lane<'a> {
    pub(super) fn new(place: Place<'a>) -> Result<Self> {
        let holders = [place.holder()?, place.holder()?];
        Ok(Self { place, holders })
    }

    /// Plays a round; `number` makes its name, and when the stop comes. After an error the lane is of no use.
    pub(super) fn play(
        &mut self,
        job: Job,
        number: usize,
        attempt: usize,
    ) -> Result<Played, Spoilt> {
        let name = format!("ledgers/{number}.{attempt}");
        let database = self.place.database(job, &format!("{number}.{attempt}"), number);
        self.holders.reverse();
        let [first, next] = &self.holders;
        if job.database == Database::Sqlite {
            next.prepare(&database)?;
        }
        let fence = if job.fenced { "fenced" } else { "bare" };
        let play = |holder: &Holder, who, step, body| {
            holder.send(&format!("play {name} {database} {who} {step} {body} {fence}"))
        };
        play(first, FIRST, job.step.word(), job.body.word())?;
        first.says("held")?;
        // It queues behind the first.
        play(next, "next", "none", Body::Dropped.word())?;
        // At any time between two renewals.
        let between = number as u64 * 137 % RENEWAL.as_millis() as u64;
        thread::sleep(Duration::from_millis(between));
        let (first_end, next_end) = meet(job, number, first, next)?;
        for holder in [first, next] {
            holder.send("end")?;
        }
        for holder in [first, next] {
            holder.says("over")?;
        }
        let ledger = match job.database {
            Database::Postgres => None,
            Database::Sqlite => {
                let all = next.ledger(&database)?.into_iter();
                Some(all.map(|(_, write)| write).collect())
            }
        };
        Ok(Played { name, first: first_end, next: next_end, ledger })
    }
}

/// Stops the first holder in its transaction, lets the next one write, and lets the first go on; returns what both were told.
fn meet(job: Job, number: usize, first: &Holder, next: &Holder) -> Result<(End, End), Spoilt> {
    first.send("begin")?;
    match job.step {
        Step::Anywhere => {
            // What a transaction takes, about.
            let micros = match job.database {
                Database::Postgres => 8_000,
                Database::Sqlite => 2_500,
            };
            thread::sleep(Duration::from_micros(number as u64 * 173 % micros));
        }
        _ => match first.says("")?.as_str() {
            "stops" => {}
            "done dropped" | "done lost" => return Err(Spoilt::Slow),
            other => return Err(Spoilt::Failed(format!("the first holder says `{other}`"))),
        },
    }
    first.worker.stop()?;
    if job.step != Step::Anywhere {
        // So that it finds this as soon as it goes on, and its gate has to be quicker.
        first.send("go")?;
    }
    next.says("held")?;
    if job.step != Step::Anywhere && !first.is_silent() {
        return Err(Spoilt::Slow);
    }
    next.send("begin")?;
    let waits = match job.step {
        Step::BeforeFence | Step::Limited => false,
        // Only a fence has it wait there, and SQLite, which has one writer at a time.
        Step::Written => job.fenced || job.database == Database::Sqlite,
        Step::Anywhere => true,
    };
    let early = match waits {
        true => next.says_within(WAITED, "done")?,
        false => Some(next.says("done")?),
    };
    first.worker.cont();
    let first_end = End::parse(&first.says("done")?)?;
    let next_end = match early {
        Some(end) => end,
        None => next.says("done")?,
    };
    match End::parse(&next_end)? {
        End::Dropped | End::Lost => Err(Spoilt::Slow),
        next_end => Ok((first_end, next_end)),
    }
}
