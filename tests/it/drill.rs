//! Row of the table of drills: what was done, what callers got, what was logged, and how long it took.
//!
//! `cargo xtask drills` runs each drill in a process of its own, and names the file to which the drill appends its row.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::time::Duration;

use etcd_locked::LockError;
use serde_json::{Value, json};

use crate::logs;

/// Variable that names the file. Without it, nothing is recorded.
const FILE: &str = "ETCD_LOCKED_DRILLS";

/// A drill under way.
#[derive(Debug)]
pub(crate) struct Drill {
    done: String,
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
        if is_recorded() {
            logs::collect();
        }
        Drill {
            done: done.into(),
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
            None => self.got.push(Got {
                what,
                says,
                count: 1,
            }),
        }
    }

    /// Returns the environment of workers, whose warnings and errors are logged in this drill.
    pub(crate) fn environment(&self) -> Option<(&'static str, String)> {
        Some(("WORKER_LOG_FILE", log_of_workers()?))
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
        let got = self.got.into_iter();
        let got = got.map(|it| json!({ "what": it.what, "says": it.says, "count": it.count }));
        let took = self.took.into_iter();
        let took =
            took.map(|(until, time)| json!({ "until": until, "seconds": time.as_secs_f64() }));
        let of_workers = log_of_workers().and_then(|path| fs::read_to_string(path).ok());
        let mut logged = logs::all();
        logged.extend(
            of_workers
                .iter()
                .flat_map(|text| text.lines())
                .map(str::to_owned),
        );
        append(&json!({
            "done": self.done,
            "got": got.collect::<Vec<_>>(),
            "logged": logged,
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

/// Returns the path of the file for what workers log, if drills are recorded.
fn log_of_workers() -> Option<String> {
    env::var(FILE).ok().map(|rows| rows + ".log")
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
