//! Row of the table of drills: what was done, what callers got, what was logged, which metrics moved, and how long it took.
//!
//! `cargo xtask drills` runs each drill in a process of its own, and names the file to which the drill appends its row.

use std::collections::BTreeSet;
use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;

use etcd_locked::LockError;
use etcd_locked_tests::moved;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::limit::PATIENCE;
use crate::logs;
use crate::what_happens::Row;

/// Variable that names the file. Without it, nothing is recorded.
const FILE: &str = "ETCD_LOCKED_DRILLS";

/// Series of metrics that have moved in this process.
static MOVED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Series that locks move where nothing is wrong, besides answers of etcd.
const ORDINARY: [&str; 5] = [
    "held",
    "hold_seconds",
    "lease_remaining_seconds",
    "wait_seconds{outcome=\"granted\"}",
    "waiters",
];

/// A drill under way.
#[derive(Debug)]
pub(crate) struct Drill {
    done: String,
    /// Has the file of what the workers log.
    workers: TempDir,
    got: Vec<Got>,
    took: Vec<(String, Duration)>,
}

/// One kind of answer to callers.
#[derive(Debug)]
struct Got {
    what: String,
    /// Text of the first error of this kind.
    says: Option<String>,
    count: usize,
}

impl Drill {
    /// Begins a drill. `done` is the row's title: what is done, and to what.
    pub(crate) fn begin(done: impl Into<String>) -> Drill {
        static WATCHES: Once = Once::new();
        WATCHES.call_once(|| {
            moved::watch(|series| {
                let mut all = MOVED.lock().unwrap_or_else(PoisonError::into_inner);
                all.insert(series.to_owned());
            });
        });
        logs::collect();
        Drill {
            done: done.into(),
            workers: TempDir::new().expect("a temporary directory"),
            got: Vec::new(),
            took: Vec::new(),
        }
    }

    /// Notes what one caller got.
    pub(crate) fn got(&mut self, what: impl Into<String>) {
        self.note(what.into(), None);
    }

    /// Notes the error that a caller in another process got, and its text.
    pub(crate) fn got_saying(&mut self, what: &str, says: &str) {
        self.note(what.to_owned(), Some(says.to_owned()));
    }

    /// Notes the error that one caller got.
    pub(crate) fn error(&mut self, error: &LockError) {
        self.note(kind(error), Some(error.to_string()));
    }

    /// Notes the result that one caller got, under this word if it is no error.
    pub(crate) fn result<T>(&mut self, word: &str, result: &Result<T, LockError>) {
        match result {
            Ok(_) => self.got(word),
            Err(error) => self.error(error),
        }
    }

    fn note(&mut self, what: String, says: Option<String>) {
        match self.got.iter_mut().find(|got| got.what == what) {
            Some(got) => got.count += 1,
            None => self.got.push(Got { what, says, count: 1 }),
        }
    }

    /// Returns the environment of workers, whose warnings, errors and metrics are those of this drill.
    pub(crate) fn environment(&self) -> [(&'static str, String); 1] {
        let file = self.workers.path().join("log");
        [("WORKER_LOG_FILE", file.display().to_string())]
    }

    /// Returns the warnings and errors of all processes, and the series that have moved.
    fn seen(&self) -> (Vec<String>, BTreeSet<String>) {
        let of_workers = fs::read_to_string(self.workers.path().join("log")).unwrap_or_default();
        let mut lines = logs::all();
        let mut moved = MOVED.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for line in of_workers.lines() {
            match line.strip_prefix("MOVED ") {
                Some(series) => drop(moved.insert(series.to_owned())),
                None => lines.push(line.to_owned()),
            }
        }
        (lines, moved)
    }

    /// Awaits all codes and metrics of this row of the page `book/src/what-happens.md`. In a process of its own, panics if there
    /// were others that the row ought to name; elsewhere they may come from tests that run at the same time.
    pub(crate) async fn shows(&self, title: &str) {
        let row = Row::of(title);
        let begun = Instant::now();
        loop {
            let (lines, moved) = self.seen();
            let codes = lines.iter().filter_map(|line| code(line)).collect();
            let missing = row.missing(&codes, &moved);
            if missing.is_empty() {
                let unnamed = row.unnamed(&codes, &moved);
                let is_whole = !is_recorded() || unnamed.is_empty();
                assert!(is_whole, "`{title}` does not name {unnamed:?}: {lines:#?}");
                return;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "`{title}` names {missing:?}; there were {codes:?} and {moved:?}"
            );
            sleep(Duration::from_millis(20)).await; // not in a busy loop
        }
    }

    /// Notes how long it took, from the fault's end unless `until` says otherwise.
    pub(crate) fn took(&mut self, until: &str, time: Duration) {
        self.took.push((until.to_owned(), time));
    }

    /// Notes such a time of several; the row shows the longest.
    pub(crate) fn took_longest(&mut self, until: &str, time: Duration) {
        let until = format!("{until} (the longest)");
        match self.took.iter_mut().find(|it| it.0 == until) {
            Some((_, longest)) => *longest = time.max(*longest),
            None => self.took(&until, time),
        }
    }

    /// Ends the drill, and appends its row to the file.
    pub(crate) fn end(self) {
        let (logged, mut moved) = self.seen();
        moved.retain(|it| !ORDINARY.contains(&it.as_str()) && !it.contains("outcome=\"ok\""));
        let got = self.got.into_iter();
        let got = got.map(|it| json!({ "what": it.what, "says": it.says, "count": it.count }));
        let took = self.took.into_iter();
        let took =
            took.map(|(until, time)| json!({ "until": until, "seconds": time.as_secs_f64() }));
        append(&json!({
            "done": self.done,
            "got": got.collect::<Vec<_>>(),
            "logged": logged,
            "moved": moved,
            "took": took.collect::<Vec<_>>(),
        }));
    }

    /// Ends the drill before it begins, for want of something.
    pub(crate) fn leave_out(self, why: &str) {
        append(&json!({ "done": self.done, "left_out": why }));
    }
}

fn is_recorded() -> bool {
    env::var_os(FILE).is_some()
}

/// Returns the code of a line of the log.
fn code(line: &str) -> Option<String> {
    let (_, code) = line.split_once(" code=\"")?;
    Some(code.split('"').next()?.to_owned())
}

fn append(row: &Value) {
    let Some(path) = env::var_os(FILE) else {
        return;
    };
    let file = OpenOptions::new().create(true).append(true).open(path);
    let mut file = file.expect("the file of the drills' rows");
    writeln!(file, "{row}").expect("a row can be written");
}

/// Names the variant of an error, and what decides about its handling.
pub(crate) fn kind(error: &LockError) -> String {
    match error {
        LockError::Lost { cause, .. } => format!("Lost {{ {cause:?} }}"),
        LockError::Backend { .. } if error.is_retryable() => "Backend, retryable".to_owned(),
        LockError::Backend { .. } => "Backend, not retryable".to_owned(),
        _ => {
            let debug = format!("{error:?}");
            let end = debug.find(|c: char| !c.is_alphanumeric());
            debug[..end.unwrap_or(debug.len())].to_owned()
        }
    }
}
