//! Page of the show: a table of the fenced rounds, and one of those without.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::judge::Fate;
use super::round::{End, Job};
use super::{Seen, Show};
use crate::etcd::Etcd;

/// What holders are told, in the words of the library.
const TOLD: [(End, &str); 4] = [
    (End::Committed, "committed"),
    (End::Dropped, "`LockError::Lost`"),
    (End::Lost, "`Lost`, by the fence"),
    (End::DatabaseFailed, "the database's error"),
];

/// Both tables.
pub(super) fn tables(show: &Show) -> String {
    format!("Fenced:\n\n{}\nNot fenced:\n\n{}", table(show, true), table(show, false))
}

/// A row for each database, step and body.
fn table(show: &Show, fenced: bool) -> String {
    let mut text = "\
| | stopped | its body | rounds | committed before the next | not committed | committed after the next | the first was told |
|---|---|---|---|---|---|---|---|
"
    .to_owned();
    let mut rows: BTreeMap<Job, Vec<&Seen>> = BTreeMap::new();
    for seen in show.seen.iter().filter(|it| it.job.fenced == fenced) {
        rows.entry(seen.job).or_default().push(seen);
    }
    for (job, seen) in rows {
        let fate = |fate| seen.iter().filter(|it| it.fate == fate).count();
        let told = TOLD.iter().filter_map(|(end, words)| {
            match seen.iter().filter(|it| it.end == *end).count() {
                0 => None,
                many => Some(format!("{words} {many}")),
            }
        });
        let told: Vec<_> = told.collect();
        let (before, absent, stale) = (fate(Fate::Before), fate(Fate::Absent), fate(Fate::Stale));
        let (database, step, body, rounds) = (job.database, job.step, job.body, seen.len());
        let told = told.join(", ");
        let _ = writeln!(
            text,
            "| {database} | {step} | {body} | {rounds} | {before} | {absent} | {stale} | {told} |"
        );
    }
    text
}

pub(super) fn page(etcd: &Etcd, show: &Show, tables: &str) -> String {
    let [postgres, sqlite] = &show.versions;
    format!(
        "# Holders that are stopped in the middle of a transaction\n\n\
         Written by `cargo xtask fenced --times N --write`, on etcd {}, {postgres} and {sqlite}. In each round a process takes\n\
         a lock with a TTL of 2 s, begins a fenced transaction and writes a row. It is stopped by SIGSTOP until its lease is over\n\
         and another process has the lock, and goes on once that one has committed, or waits for the first one's transaction. The judge\n\
         reads which rows were committed, in which order: of PostgreSQL from its own log (logical decoding), of SQLite, which has one\n\
         writer at a time, from the numbers of the rows. About half of SQLite's files have a write-ahead log. A commit is stale if it comes\n\
         after that of a holder with a greater token.\n\n\
         {tables}\n\
         - **Stopped**: before the fence, in a transaction of its own, which `fenced` refuses then; before its commit, in one that\n\
         \x20 `begin_fenced` began, when the next holder's waits for the row; the same with `idle_in_transaction_session_timeout = '1s'`, so that\n\
         \x20 PostgreSQL ends the transaction and the next holder need not wait; or anywhere: at a random moment of a transaction that does\n\
         \x20 not wait, or after it. Without a fence the steps are the same.\n\
         - **Its body** awaits under `hold` (or the attribute), is in the middle of one poll, or goes on after a loss: without `hold`, or\n\
         \x20 with `on_lost = \"continue\"`. One that awaits is dropped at the gate, and its transaction is rolled back. A poll that has\n\
         \x20 begun cannot be interrupted: it sends the commit, and the gate drops what waits for the answer.\n\
         - **Told `Lost`** by the gate says that the body was dropped, not what the database has done: a commit may be on its way. It came\n\
         \x20 before the next holder's all the same.\n\
         - SQLite has one writer at a time, so what was written before the stop is committed before the next holder writes, fenced or not.\n\n\
         Rounds in which a holder lost its lock before it was stopped, because the machine was too slow, were played again: {}.\n",
        etcd.version, show.again
    )
}

#[cfg(test)]
mod tests {
    use super::super::round::{Body, Database, Step};
    use super::*;

    #[test]
    fn table_has_a_row_for_each_kind_and_what_was_told() {
        let job = Job {
            fenced: true,
            database: Database::Sqlite,
            step: Step::Written,
            body: Body::Polled,
        };
        let seen = |end, fate| Seen { job, end, fate };
        let show = Show {
            seen: vec![
                seen(End::Dropped, Fate::Before),
                seen(End::Committed, Fate::Before),
                seen(End::Dropped, Fate::Absent),
            ],
            failed: Vec::new(),
            again: 0,
            versions: Default::default(),
        };
        let rows: Vec<_> = tables(&show).lines().map(str::to_owned).collect();
        let row = "| SQLite | before its commit | in a poll | 3 | 2 | 1 | 0 | committed 1, `LockError::Lost` 2 |";
        assert!(rows.iter().any(|it| it == row), "{rows:#?}");
    }
}
