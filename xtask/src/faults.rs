//! Table of faults: what a lock must do under each, and which drills, tests and kinds of torture's faults show it.

use std::fmt::Write;

use crate::Result;

/// A row a line: number, fault, what is required, tests of `tests/it`, kinds of torture's faults, what is missing.
const ROWS: &str = include_str!("faults.txt");

/// Heading of the table.
const HEADING: &str = "## Faults, and where each is shown";

/// Fault of the table.
#[derive(Debug)]
struct Fault {
    number: u32,
    what: &'static str,
    required: &'static str,
    /// Tests of `tests/it`; those that are drills have a heading on the page.
    tests: Vec<&'static str>,
    /// Kinds of torture's faults, by their names.
    kinds: Vec<&'static str>,
    /// What shows it only in part, or not at all; empty if nothing is missing.
    missing: &'static str,
}

fn all() -> Result<Vec<Fault>> {
    let fault = |row: &'static str| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let [number, what, required, tests, kinds, missing] = cells[..] else {
            return Err(format!("faults.txt: not six cells: `{row}`"));
        };
        let list = |cell: &'static str| {
            let words = cell.split(',').map(str::trim);
            words.filter(|word| !word.is_empty()).collect()
        };
        let number = number.parse();
        Ok(Fault {
            number: number.map_err(|_| format!("faults.txt: no number: `{row}`"))?,
            what,
            required,
            tests: list(tests),
            kinds: list(kinds),
            missing,
        })
    };
    ROWS.lines().map(fault).collect()
}

/// Writes the table. `headings` are the drills of the page with their headings, in the order of the page.
pub(crate) fn table(headings: &[(&str, String)]) -> Result<String> {
    let anchors = anchors(headings);
    let mut page = format!(
        "{HEADING}\n\n\
         Drills are below. Tests are those of `tests/it` that have no heading on this page. Torture plays kinds of faults at random: \
         `cargo xtask chaos --only \"…\"` plays one.\n\n\
         | # | fault | required | drills | tests | torture | missing |\n|---|---|---|---|---|---|---|\n",
    );
    for fault in all()? {
        let (mut drills, mut tests) = (Vec::new(), Vec::new());
        for test in &fault.tests {
            let at = headings.iter().position(|(drill, _)| drill == test);
            match at {
                Some(at) => drills.push(format!("[{}](#{})", headings[at].1, anchors[at])),
                None => tests.push(format!("`{test}`")),
            }
        }
        let row = [
            fault.number.to_string(),
            fault.what.to_owned(),
            fault.required.to_owned(),
            drills.join("<br>"),
            tests.join("<br>"),
            fault.kinds.join("<br>"),
            fault.missing.to_owned(),
        ];
        writeln!(page, "| {} |", row.join(" | ")).map_err(|error| error.to_string())?;
    }
    Ok(page)
}

/// Returns a page whose table is that of now; its drills are those of the page.
pub(crate) fn replaced(page: &str) -> Result<String> {
    let lost = || format!("the page has no `{HEADING}` before its drills");
    let (before, rest) = page.split_once(HEADING).ok_or_else(lost)?;
    let (_, drills) = rest.split_once("\n## ").ok_or_else(lost)?;
    // A drill begins with its heading, an empty line and its name.
    let headings: Vec<_> = drills
        .split("\n## ")
        .filter_map(|drill| {
            let (heading, rest) = drill.split_once("\n\n`")?;
            Some((rest.split_once('`')?.0, heading.to_owned()))
        })
        .collect();
    Ok(format!("{before}{}\n## {drills}", table(&headings)?))
}

/// Returns the anchor of each heading, as GitHub makes it: of several equal ones, the later ones have a number.
fn anchors(headings: &[(&str, String)]) -> Vec<String> {
    let mut plain: Vec<String> = Vec::new();
    let mut anchors = Vec::new();
    for (_, heading) in headings {
        let anchor = anchor(heading);
        let before = plain.iter().filter(|other| **other == anchor).count();
        anchors.push(match before {
            0 => anchor.clone(),
            before => format!("{anchor}-{before}"),
        });
        plain.push(anchor);
    }
    anchors
}

fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Returns whether there is a test of this name, `module::test`, in `tests/it`.
#[cfg(test)]
pub(crate) fn is_test(name: &str) -> bool {
    let Some((module, test)) = name.split_once("::") else {
        return false;
    };
    let folder = crate::workspace::root().join("tests/it");
    let source = std::fs::read_to_string(folder.join(module).with_extension("rs"));
    source.is_ok_and(|source| {
        let lines: Vec<_> = source.lines().collect();
        let begin = format!("fn {test}() {{");
        let begins = |line: &&str| line.strip_prefix("async ").unwrap_or(line) == begin;
        let at = lines.iter().position(begins);
        at.is_some_and(|at| {
            let before = lines[..at].iter().rev();
            let mut attributes = before.take_while(|line| line.starts_with("#["));
            attributes.any(|line| ["#[test]", "#[limit::test]"].contains(line))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drills::DRILLS;

    /// Reads the names of the kinds from the sources of torture.
    fn kinds() -> Vec<String> {
        let source = crate::workspace::root().join("tests/chaos/src/schedule.rs");
        let source = std::fs::read_to_string(source).expect("a readable source");
        let names = source.split("#[value(name = \"").skip(1);
        let names = names.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()));
        names.collect()
    }

    #[test]
    fn every_fault_has_one_row_in_order() {
        let numbers: Vec<_> = all().unwrap().iter().map(|fault| fault.number).collect();
        assert_eq!(numbers, Vec::from_iter(1..=45));
    }

    #[test]
    fn every_fault_is_shown_by_what_exists() {
        let known = kinds();
        assert!(known.iter().any(|kind| kind == "leader killed"), "{known:?}");
        for fault in all().unwrap() {
            let number = fault.number;
            assert!(fault.tests.len() + fault.kinds.len() > 0, "nothing shows fault {number}");
            for test in fault.tests {
                assert!(is_test(test), "fault {number}: there is no test `{test}`");
            }
            for kind in fault.kinds {
                let is_known = known.iter().any(|other| other == kind);
                assert!(is_known, "fault {number}: there is no kind `{kind}`");
            }
        }
    }

    #[test]
    fn faults_of_the_field_have_a_drill() {
        for fault in all().unwrap().iter().filter(|fault| fault.number > 30) {
            let has_drill = fault.tests.iter().any(|test| DRILLS.contains(test));
            assert!(has_drill, "fault {} has no drill", fault.number);
        }
    }

    #[test]
    fn every_drill_shows_a_fault_or_a_row_for_operators() {
        let faults = all().unwrap();
        let page = crate::workspace::root().join("book/src/what-happens.md");
        let page = std::fs::read_to_string(page).expect("the page");
        for drill in DRILLS {
            let shows = faults.iter().any(|fault| fault.tests.contains(drill));
            let is_named = page.contains(&format!("| `{drill}` |"));
            assert!(shows || is_named, "`{drill}` is in no row");
        }
    }

    #[test]
    fn page_has_the_table_of_now() {
        let file = crate::workspace::root().join(crate::drills::PAGE);
        let page = std::fs::read_to_string(file).expect("the page");
        let as_it_should_be = replaced(&page).unwrap();
        assert!(page == as_it_should_be, "`cargo xtask drills --table` writes the table");
    }

    #[test]
    fn anchors_are_those_of_headings() {
        let headings = ["`shutdown(1s)` on an etcd, TTL 5 s", "A lock", "A lock"];
        let headings = headings.map(|heading| ("", heading.to_owned()));
        assert_eq!(anchors(&headings), ["shutdown1s-on-an-etcd-ttl-5-s", "a-lock", "a-lock-1"]);
    }

    #[test]
    fn tests_without_a_heading_are_listed_by_name() {
        let titles = [("clusters::endpoints_of_two_clusters_are_refused", "Two".to_owned())];
        let page = table(&titles).unwrap();
        let row = page.lines().find(|line| line.starts_with("| 31 |"));
        let row = row.expect("a row");
        assert!(row.contains("| [Two](#two) | `clusters::second_cluster"), "{row}");
    }
}
