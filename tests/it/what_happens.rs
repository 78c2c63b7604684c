//! Rows of the page `book/src/what-happens.md`: each names a test, and that test asserts the codes and the metrics of the row.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A row, as far as a test can judge it.
#[derive(Debug)]
pub(crate) struct Row {
    /// What happens.
    pub(crate) title: String,
    codes: Cell,
    metrics: Cell,
    /// The test that shows it, `module::name`.
    test: String,
}

/// Codes or metrics of a row.
#[derive(Debug)]
struct Cell {
    always: Vec<String>,
    /// Those after the word "perhaps", which depend on what is under way just then.
    perhaps: Vec<String>,
}

impl Cell {
    fn of(text: &str) -> Cell {
        let (always, perhaps) = text.split_once("perhaps").unwrap_or((text, ""));
        Cell { always: quoted(always), perhaps: quoted(perhaps) }
    }

    fn all(&self) -> impl Iterator<Item = &String> {
        self.always.iter().chain(&self.perhaps)
    }
}

impl Row {
    pub(crate) fn of(title: &str) -> Row {
        let row = rows().into_iter().find(|row| row.title == title);
        row.unwrap_or_else(|| panic!("no row of the page begins with `{title}`"))
    }

    /// Returns what the row names and what has not occurred.
    pub(crate) fn missing(
        &self,
        codes: &BTreeSet<String>,
        moved: &BTreeSet<String>,
    ) -> Vec<&String> {
        let missing = self.codes.always.iter().filter(|code| !codes.contains(*code));
        let still = |metric: &&String| !moved.iter().any(|series| is_of(series, metric));
        missing.chain(self.metrics.always.iter().filter(still)).collect()
    }

    /// Returns what has occurred and ought to be in the row: any code, and any count of losses or refusals.
    pub(crate) fn unnamed<'a>(
        &self,
        codes: &'a BTreeSet<String>,
        moved: &'a BTreeSet<String>,
    ) -> Vec<&'a String> {
        // Debian's own etcds have known bugs.
        let unnamed = codes
            .iter()
            .filter(|code| *code != "etcd.version" && !self.codes.all().any(|it| it == *code));
        let counts = ["lost_total", "history_lost_total", "deadlocks_total"];
        let moved = moved.iter().filter(move |series| {
            counts.contains(&name(series))
                && !self.metrics.all().any(|metric| is_of(series, metric))
        });
        unnamed.chain(moved).collect()
    }
}

/// Returns whether a series has the name of a metric, and the labels that the page gives it.
fn is_of(series: &str, metric: &str) -> bool {
    let labels = |of: &str| -> BTreeSet<String> {
        let (_, labels) = of.trim_end_matches('}').split_once('{').unwrap_or_default();
        let labels = labels.split(',').filter(|label| !label.is_empty());
        labels.map(str::to_owned).collect()
    };
    name(series) == name(metric) && labels(metric).is_subset(&labels(series))
}

fn name(series: &str) -> &str {
    series.split('{').next().unwrap_or(series)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn rows() -> Vec<Row> {
    let page = read("book/src/what-happens.md");
    let lines = page.lines().filter(|line| line.starts_with("| "));
    let row = |line: &str| {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [title, _callers, log, metrics, _well, test] = cells[..] else {
            panic!("not six cells: {line}");
        };
        Row {
            title: title.to_owned(),
            codes: Cell::of(log),
            metrics: Cell::of(metrics),
            test: quoted(test).concat(),
        }
    };
    lines.skip(1).map(row).collect()
}

/// Returns what stands between backticks.
fn quoted(cell: &str) -> Vec<String> {
    let quoted = cell.split('`').skip(1).step_by(2);
    quoted.map(str::to_owned).collect()
}

#[test]
fn every_row_is_asserted_by_the_test_it_names() {
    let rows = rows();
    assert!(rows.len() > 15, "{rows:#?}");
    for Row { title, test, .. } in rows {
        let (module, name) = test.split_once("::").expect("`module::name`");
        let source = read(&format!("tests/it/{module}.rs"));
        let tests =
            ["#[limit::test]\nasync ", "#[test]\n"].map(|test| format!("{test}fn {name}() {{\n"));
        let begin = tests.iter().find_map(|test| source.find(test));
        let begin = begin.unwrap_or_else(|| panic!("`{title}`: there is no test `{test}`"));
        let body = &source[begin..];
        let body = &body[..body.find("\n}\n").expect("the test's end")];
        let asserts = format!("\"{title}\"");
        assert!(body.contains(&asserts), "{test} does not name {asserts}");
    }
}

#[test]
fn every_code_and_metric_of_the_page_exists() {
    let codes = read("runtime/docs/codes.md");
    let metrics = read("runtime/src/metrics.rs");
    for row in rows() {
        for code in row.codes.all() {
            let known = codes.contains(&format!("\n| `{code}` |"));
            assert!(known, "`{}`: there is no code `{code}`", row.title);
        }
        for metric in row.metrics.all() {
            let described = format!("\"etcd_locked_{}\",", name(metric));
            let known = metrics.contains(&described);
            assert!(known, "`{}`: there is no metric `{metric}`", row.title);
        }
    }
}

#[test]
fn series_is_of_a_metric_with_fewer_labels() {
    let series = "request_seconds{kind=\"write\",outcome=\"refused\"}";
    assert!(is_of(series, "request_seconds{outcome=\"refused\"}"));
    assert!(is_of(series, "request_seconds"));
    assert!(!is_of(series, "request_seconds{outcome=\"ok\"}"));
    assert!(!is_of(series, "request"));
}
