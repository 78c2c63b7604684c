//! `cargo xtask drills`: runs the drills, the tests of what a real etcd does to us, on three etcds, and writes tests/DRILLS.md.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::etcd::{Choice, Etcd};
use crate::faults;
use crate::options::Asked;
use crate::process::Process;
use crate::{Result, say, workspace};

/// A drill: a test of `tests/it`.
type Drill = &'static str;

/// All drills, in the order of the page.
pub(crate) const DRILLS: &[Drill] = &[
    "told_why::revoked_lease_is_always_the_cause",
    "told_why::key_that_an_operator_deletes_is_always_the_cause",
    "stopped::a_killed_holder_with_a_ttl_of_5_s_is_followed_within_6_s",
    "stopped::a_stopped_holder_is_not_polled_after_it_wakes",
    "clusters::endpoints_of_two_clusters_are_refused",
    "clusters::second_cluster_that_appears_later_is_refused",
    "no_space::a_refused_lock_leaves_no_key",
    "restored_soon::ownership_is_lost_soon_and_watches_live_after_a_restore",
    "restored::a_restore_from_a_snapshot_costs_every_lock_held",
    "history::lost_history_is_one_error_event",
    "refused_writes::delete_is_repeated_after_a_wrong_password",
    "refused_writes::delete_is_repeated_after_a_revoked_role",
    "refused_writes::delete_is_carried_out_by_a_full_etcd",
    "refused_writes::barrier_is_repeated_after_a_wrong_password",
    "refused_writes::barrier_is_repeated_after_a_revoked_role",
    "refused_writes::barrier_is_repeated_after_a_full_etcd",
    "after_outage::names_are_served_soon_after_etcd_was_frozen",
    "after_outage::names_are_served_soon_after_etcd_was_killed",
    "after_outage::names_are_served_soon_after_a_long_freeze",
    "after_outage::names_are_served_soon_after_a_long_absence",
    "outage_answers::every_call_answers_soon_when_etcd_is_frozen",
    "outage_answers::every_call_answers_soon_when_etcd_is_killed",
    "outage_answers::bodies_run_on_and_calls_fail_in_a_short_outage",
    "told_why::release_while_etcd_is_frozen_says_why",
    "told_why::release_after_etcd_was_killed_says_why",
    "credentials::refused_credentials_are_the_cause_of_a_loss",
    "credentials::certificate_of_another_authority_costs_the_lock_and_is_named",
    "credentials::tokens_that_expire_cost_nothing_in_any_mode",
    "credentials::role_revoked_under_a_holder_costs_no_lock_or_says_why",
    "credentials::removed_user_is_the_cause_of_a_loss",
    "rotation::rotation_of_all_certificates_costs_no_lock",
    "rotation::password_that_changes_in_its_file_costs_no_lock",
    "rotation::closure_is_asked_again_when_etcd_refuses",
    "rotation::end_of_a_certificate_is_warned_of_once_a_day",
    "misconfigured::credentials_are_not_retryable",
    "misconfigured::tls_mistakes_are_refused_at_once",
    "misconfigured::tls_to_a_plain_port_is_refused_at_once",
    "misconfigured::an_endpoint_without_etcd_gets_no_hint_at_tls",
    "members::all_members_may_be_replaced",
    "members::rolling_restart_fails_no_call",
    "upgrade::upgrades_under_load_cost_no_call_and_no_lock",
    "nested_waiters::tasks_that_hold_a_lock_are_served_as_fast_as_others",
    "tries_at_once::ten_thousand_exclusive_tries_serve_one",
    "tries_at_once::ten_thousand_tries_for_a_few_permits_end",
    "tries_at_once::ten_thousand_shared_tries_behind_a_holding_writer_end",
    "tries_at_once::ten_thousand_shared_tries_behind_a_queued_writer_end",
    "tries_at_once::ten_thousand_shared_tries_behind_an_undecided_writer_end",
    "shutdown_scale::a_shutdown_with_twenty_thousand_locks_ends",
    "drained::a_shutdown_says_what_ended_and_what_is_left",
    "drained::retention_does_not_block_a_shutdown_on_a_frozen_etcd",
    "drained::retention_does_not_block_a_shutdown_on_a_dead_etcd",
    "misconfigured::init_after_shutdown_says_shutting_down",
    "hostile_record::a_strangers_record_is_escaped_and_cut",
    "hostile_record::a_strangers_record_forges_no_log_line",
    "no_lease::a_key_without_a_lease_is_named",
    "no_lease::a_key_that_was_detached_from_its_lease_is_named",
    "grpc_proxy::locks_work_behind_the_grpc_proxies_of_etcd",
    "members::a_member_that_lags_is_passed_over",
    "forked::a_childs_call_is_refused_at_once",
    "panic::a_panic_in_the_body_releases_the_lock",
    "runtimes::a_blocked_executor_keeps_the_lock",
    "deadlock::detects_cycle_across_processes",
    "secrets::no_mistake_in_a_variable_shows_its_secret",
    "secrets::a_password_in_use_is_in_no_log_line_and_no_record",
    "secrets::debug_of_what_knows_a_secret_does_not_show_it",
];

/// The etcds of the page, as `--etcd` names them.
const ETCDS: [&str; 3] = ["3.4", "3.5", "newest"];

/// The page, below the workspace's root.
pub(crate) const PAGE: &str = "tests/DRILLS.md";

/// Limit of a drill, longer than a test takes before it gives up by itself.
const LIMIT: Duration = Duration::from_secs(240);

/// Most characters of an error or a log line on the page.
const LONGEST: usize = 400;

/// Runs all drills and writes the page; or on one etcd, or those whose names contain a word, to target/.
pub(crate) fn drills(asked: &Asked, words: &[String]) -> Result<String> {
    let chosen: Vec<Drill> = DRILLS
        .iter()
        .filter(|drill| words.is_empty() || words.iter().any(|word| drill.contains(word.as_str())))
        .copied()
        .collect();
    if chosen.is_empty() {
        return Err(format!("no drill has `{}` in its name", words.join("` or `")));
    }
    say::step("etcd");
    let whole = asked.etcd.is_none() && words.is_empty();
    let etcds = match &asked.etcd {
        Some(choice) => vec![choice.find()?],
        None => {
            let choices = ETCDS.iter().map(|choice| choice.parse::<Choice>()?.find());
            choices.collect::<Result<_>>()?
        }
    };
    say::step("building the tests");
    let tests = workspace::build_test(&["--package", "etcd-locked-tests", "--test", "it"], "it")?;

    say::step(format_args!("{} drills on each etcd", chosen.len()));
    let begun = Instant::now();
    // Drills mostly wait, so one on each etcd at a time leaves a processor to each.
    let columns: Vec<Column> = thread::scope(|scope| {
        let runs: Vec<_> =
            etcds.iter().map(|etcd| scope.spawn(|| Column::run(etcd, &tests, &chosen))).collect();
        let columns = runs.into_iter().map(|run| run.join());
        columns
            .map(|column| column.map_err(|_| "a thread of xtask has panicked".to_owned()))
            .collect::<Result<_>>()
    })?;
    let page = page(&chosen, &columns)?;
    let failed: Vec<String> = columns.iter().flat_map(Column::failures).collect();
    for failure in &failed {
        eprintln!("\n{failure}");
    }
    let place = match whole && failed.is_empty() {
        true => PAGE,
        // Not all of it, or not as it should be: not for others to read.
        false => "target/DRILLS.md",
    };
    workspace::write(workspace::root().join(place), page)?;
    if !failed.is_empty() {
        return Err(format!(
            "{} drills are not as they should be; {place} has the others",
            failed.len()
        ));
    }
    let left_out = match columns.iter().map(Column::count_left_out).sum() {
        0 => String::new(),
        count => format!(", {count} times one was left out"),
    };
    Ok(format!(
        "drills: ok — {} drills on etcd {}, in {:.0} s{left_out}; {place}",
        chosen.len(),
        versions(&columns),
        begun.elapsed().as_secs_f64()
    ))
}

/// Writes the table of faults anew into the page, whose drills stay as they are.
pub(crate) fn write_table() -> Result<String> {
    let file = workspace::root().join(PAGE);
    let page = workspace::read(&file)?;
    workspace::write(&file, faults::replaced(&page)?)?;
    Ok(format!("drills: ok — the table of faults; {PAGE}"))
}

/// Column of the page: all drills on one etcd.
struct Column {
    version: String,
    /// The row of each drill, or the output of a test that failed.
    rows: BTreeMap<&'static str, Result<Value>>,
}

impl Column {
    fn run(etcd: &Etcd, tests: &Path, drills: &[Drill]) -> Self {
        let version = etcd.version.to_string();
        let run = |drill: &Drill| {
            let row = row(etcd, tests, drill);
            let verdict = match &row {
                Ok(row) if is_left_out(row) => "left out",
                Ok(_) => "ok",
                Err(_) => "FAILED",
            };
            say::note(format_args!("{version:7} {verdict:8} {drill}"));
            (*drill, row)
        };
        let rows = drills.iter().map(run).collect();
        Self { version, rows }
    }

    fn failures(&self) -> impl Iterator<Item = String> {
        self.rows.iter().filter_map(|(drill, row)| {
            let failure = row.as_ref().err()?;
            Some(format!("== {drill} on etcd {}\n{failure}", self.version))
        })
    }

    fn count_left_out(&self) -> usize {
        let rows = self.rows.values().flatten();
        rows.filter(|row| is_left_out(row)).count()
    }

    fn row(&self, drill: Drill) -> Option<&Value> {
        self.rows.get(drill)?.as_ref().ok()
    }
}

/// Tells whether a drill could not be played, such as an upgrade to an etcd that is not there.
fn is_left_out(row: &Value) -> bool {
    row["left_out"].is_string()
}

/// Runs one drill in a process of its own, so that all it logs is the drill's; returns its row.
fn row(etcd: &Etcd, tests: &Path, drill: &str) -> Result<Value> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let (rows, printed) = (folder.path().join("rows"), folder.path().join("printed"));
    let io = workspace::failed_at(folder.path());
    let file = File::create(&printed).map_err(io)?;
    let mut command = Command::new(tests);
    command
        .current_dir(workspace::root().join("tests"))
        .args([drill, "--exact", "--include-ignored", "--show-output"])
        .env("ETCD_BIN", &etcd.server)
        .env_remove("ETCD_LOCKED_TESTS_ON")
        .env("ETCD_LOCKED_DRILLS", &rows)
        .env("RUST_BACKTRACE", "0") // the reason is enough
        .stdin(Stdio::null())
        .stdout(file.try_clone().map_err(io)?)
        .stderr(file);
    let status = Process::start(drill, &mut command)?.wait(LIMIT);
    let failure = |why: String| {
        let printed = fs::read_to_string(&printed).unwrap_or_default();
        format!("{why}\n{}", printed.trim_end())
    };
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => return Err(failure(status.to_string())),
        Err(error) => return Err(failure(error)),
    }
    let rows = fs::read_to_string(&rows).unwrap_or_default();
    let rows: Vec<_> = rows.lines().map(serde_json::from_str).collect();
    match rows.as_slice() {
        [Ok(row)] => Ok(Value::clone(row)),
        rows => Err(failure(format!("it has recorded {} rows", rows.len()))),
    }
}

fn versions(columns: &[Column]) -> String {
    let versions = columns.iter().map(|column| column.version.as_str());
    versions.collect::<Vec<_>>().join(", ")
}

/// Text of an error or a line of a log, with the versions of etcd on which it occurred.
#[derive(Default)]
struct Texts(Vec<(String, Vec<String>)>);

impl Texts {
    fn add(&mut self, text: &str, version: &str) {
        let text = shown(text);
        let at = self.0.iter().position(|(other, _)| *other == text);
        let at = at.unwrap_or_else(|| {
            self.0.push((text, Vec::new()));
            self.0.len() - 1
        });
        let versions = &mut self.0[at].1;
        if !versions.iter().any(|other| other == version) {
            versions.push(version.to_owned());
        }
    }

    /// Lists the texts; those that did not occur on every version say on which.
    fn list(&self, page: &mut String, title: &str, columns: usize) -> std::fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        writeln!(page, "\n{title}:\n")?;
        for (text, versions) in &self.0 {
            match versions.len() == columns {
                true => writeln!(page, "- `{text}`")?,
                false => writeln!(page, "- `{text}` ({})", versions.join(", "))?,
            }
        }
        Ok(())
    }
}

/// Returns a text for the page: one line, cut, and without the numbers that differ from run to run.
fn shown(text: &str) -> String {
    let mut shown = String::new();
    let mut number = String::new();
    for c in text.chars().chain(['\n']) {
        if c.is_ascii_hexdigit() || c == '.' {
            number.push(c);
            continue;
        }
        match differs(&number) {
            true => shown.push('…'),
            false => shown += &number,
        }
        number.clear();
        match c {
            '\n' => shown.push(' '),
            '`' => shown.push('\''),
            _ => shown.push(c),
        }
    }
    let shown = shown.trim();
    match shown.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{} [cut]", &shown[..end]),
        None => shown.to_owned(),
    }
}

/// Returns whether it is a port, an id, a revision or a duration. Host addresses, small numbers and words stay.
fn differs(number: &str) -> bool {
    let digits = number.bytes().filter(u8::is_ascii_digit).count();
    match number.split_once('.') {
        None => digits > 0 && number.len() >= 4,
        Some((whole, fraction)) => [whole, fraction]
            .iter()
            .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit())),
    }
}

fn page(drills: &[Drill], columns: &[Column]) -> Result<String> {
    let mut page = format!(
        "# Drills: what a real etcd does to us\n\n\
         Written by `cargo xtask drills`, on {} processors. Each drill is a test of `tests/it`, run on etcd {} as it comes from \
         Debian, on one machine. A row says what its callers got, how many warnings and errors were logged in all processes, with \
         which codes, which metrics moved there that do not where nothing is wrong, and how long it took: from the end of the \
         fault, unless it says otherwise. Ports, ids and revisions are left out of \
         texts. The log is read when the last caller has its answer, so a line that is written just then is missing.\n\n",
        thread::available_parallelism().map_or(1, usize::from),
        versions(columns),
    );
    let titles: Vec<_> = drills.iter().map(|drill| (*drill, title(drill, columns))).collect();
    page += &faults::table(&titles)?;
    for drill in drills {
        section(&mut page, drill, columns).map_err(|error| error.to_string())?;
    }
    Ok(page)
}

/// Returns the heading of a drill: what is done in it.
fn title(drill: Drill, columns: &[Column]) -> String {
    let done = columns.iter().find_map(|column| column.row(drill)?["done"].as_str());
    capital(done.unwrap_or(drill))
}

fn section(page: &mut String, drill: Drill, columns: &[Column]) -> std::fmt::Result {
    writeln!(page, "\n## {}\n", title(drill, columns))?;
    writeln!(page, "`{drill}`\n")?;
    let mut cells: Vec<(String, Vec<String>)> = vec![
        ("callers got".to_owned(), Vec::new()),
        ("logged".to_owned(), Vec::new()),
        ("metrics that moved".to_owned(), Vec::new()),
    ];
    let (mut errors, mut lines) = (Texts::default(), Texts::default());
    for (at, column) in columns.iter().enumerate() {
        let Some(row) = column.row(drill) else {
            set(&mut cells, "callers got", at, "FAILED".to_owned());
            continue;
        };
        if let Some(why) = row["left_out"].as_str() {
            set(&mut cells, "callers got", at, format!("left out: {why}"));
            continue;
        }
        let mut got = Vec::new();
        for answer in list(row, "got") {
            let what = answer["what"].as_str().unwrap_or_default();
            got.push(match answer["count"].as_u64() {
                Some(1) | None => what.to_owned(),
                Some(count) => format!("{count} × {what}"),
            });
            if let Some(text) = answer["says"].as_str() {
                errors.add(text, &column.version);
            }
        }
        set(&mut cells, "callers got", at, got.join("<br>"));
        let logged = list(row, "logged").iter().filter_map(Value::as_str);
        let logged: Vec<_> = logged.collect();
        set(&mut cells, "logged", at, levels(&logged) + &codes(&logged));
        let moved = list(row, "moved").iter().filter_map(Value::as_str);
        let moved: Vec<_> = moved.map(|series| format!("`{series}`")).collect();
        set(&mut cells, "metrics that moved", at, moved.join("<br>"));
        for line in logged {
            lines.add(line, &column.version);
        }
        for took in list(row, "took") {
            let until = took["until"].as_str().unwrap_or_default();
            let seconds = took["seconds"].as_f64().unwrap_or_default();
            set(&mut cells, until, at, format!("{seconds:.2} s"));
        }
    }
    let versions = columns.iter().map(|column| column.version.as_str());
    writeln!(page, "| | {} |", versions.collect::<Vec<_>>().join(" | "))?;
    writeln!(page, "|---|{}", "---|".repeat(columns.len()))?;
    for (title, cells) in &cells {
        let of = |at: usize| cells.get(at).map_or("", String::as_str);
        let cells: Vec<_> = (0..columns.len()).map(of).collect();
        writeln!(page, "| {title} | {} |", cells.join(" | "))?;
    }
    errors.list(page, "Errors", columns.len())?;
    lines.list(page, "Logged", columns.len())
}

/// Sets the cell of a row, which is added if it is not there yet.
fn set(cells: &mut Vec<(String, Vec<String>)>, row: &str, at: usize, text: String) {
    let found = cells.iter().position(|(title, _)| title == row);
    let found = found.unwrap_or_else(|| {
        cells.push((row.to_owned(), Vec::new()));
        cells.len() - 1
    });
    let cells = &mut cells[found].1;
    cells.resize(cells.len().max(at + 1), String::new());
    cells[at] = text.replace('|', "\\|");
}

fn list<'a>(row: &'a Value, field: &str) -> &'a [Value] {
    row[field].as_array().map_or(&[], Vec::as_slice)
}

/// Counts lines by their first word, the level.
fn levels(lines: &[&str]) -> String {
    let count = |level: &str| lines.iter().filter(|line| line.starts_with(level)).count();
    let counts =
        [("ERROR", "error"), ("WARN", "warning")].map(|(level, word)| match count(level) {
            0 => None,
            1 => Some(format!("1 {word}")),
            count => Some(format!("{count} {word}s")),
        });
    match counts.iter().flatten().cloned().collect::<Vec<_>>() {
        none if none.is_empty() => "nothing".to_owned(),
        some => some.join(", "),
    }
}

/// Counts lines by their codes, each in a line of its own below the levels.
fn codes(lines: &[&str]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for line in lines {
        let code = line.split_once(" code=\"");
        let code = code.and_then(|(_, code)| code.split('"').next());
        *counts.entry(code.unwrap_or("no code")).or_default() += 1;
    }
    let shown = counts.iter().map(|(code, count)| match count {
        1 => format!("<br>`{code}`"),
        count => format!("<br>{count} × `{code}`"),
    });
    shown.collect()
}

/// Begins a title with a capital letter; the name etcd has none.
fn capital(text: &str) -> String {
    if text.starts_with("etcd ") {
        return text.to_owned();
    }
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::{DRILLS, LONGEST, codes, levels, shown};

    #[test]
    fn leaves_numbers_of_one_run_out() {
        assert_eq!(
            shown("http://127.0.0.1:40123: lease 694d9a3f1c2b after 4.0 s\nbe\u{e9}de `x`. Ended."),
            "http://127.0.0.1:…: lease … after … s be\u{e9}de 'x'. Ended."
        );
        let long = "y".repeat(2 * LONGEST);
        assert_eq!(shown(&long), format!("{} [cut]", "y".repeat(LONGEST)));
    }

    #[test]
    fn every_drill_is_a_test() {
        for drill in DRILLS {
            assert!(crate::faults::is_test(drill), "there is no test `{drill}`");
        }
    }

    #[test]
    fn counts_lines_by_level() {
        assert_eq!(levels(&[]), "nothing");
        assert_eq!(levels(&["WARN a", "ERROR b", "WARN c"]), "1 error, 2 warnings");
    }

    #[test]
    fn counts_lines_by_code() {
        let lines = ["lost code=\"b\" n=1", "back code=\"a\"", "code=\"b\""];
        let lines = lines.map(|line| format!("WARN {line}"));
        let lines = lines.each_ref().map(String::as_str);
        assert_eq!(codes(&lines), "<br>`a`<br>2 × `b`");
    }
}
