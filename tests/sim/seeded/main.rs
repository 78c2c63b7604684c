//! Does the simulator find what it is for? It plays a core with one mistake in it, for each mistake of the table.
//!
//! The core here is a copy, written by `build.rs`; all else is the very simulator.

#[allow(dead_code, unreachable_pub)]
#[path = "../../../runtime/src/clock.rs"]
mod clock;
#[allow(dead_code, unreachable_pub)]
#[path = "../../../runtime/src/values/cycle.rs"]
mod cycle;
#[allow(dead_code, unreachable_pub)]
#[path = "../../../runtime/src/values/error.rs"]
mod error;
#[allow(dead_code, unreachable_pub)]
#[path = "../../../runtime/src/values/holder.rs"]
mod holder;
#[allow(dead_code, unreachable_pub, unexpected_cfgs)] // it has features, we have none
#[path = "../../../runtime/src/values/name.rs"]
mod name;
#[allow(dead_code, unreachable_pub)]
#[path = "../../../runtime/src/values/wait.rs"]
mod site;
include!(concat!(env!("OUT_DIR"), "/core.rs"));

#[allow(dead_code)] // nor how much was searched
#[path = "../src/search/mod.rs"]
mod search;
#[path = "../src/series.rs"]
mod series;
#[allow(dead_code)] // what builds the copy needs more of it
mod table;
#[allow(dead_code)] // nobody here tells of single schedules
#[path = "../src/world/mod.rs"]
mod world;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use crate::search::{SEARCHES, Search};
use crate::series::play_all;
use crate::table::{BUGS, Bug};
use crate::world::violation::{Promise, Violation};

/// A bug is to be found by then.
const SEEDS: u64 = 5000;
/// As many find nothing if there is none.
const SOUND: u64 = 500;
/// As many more are played of each bug for the report, to see what else it breaks.
const MORE: u64 = 300;
/// So much less deep is searched for a bug than for none.
const LESS: usize = 1;

thread_local! {
    static CHOSEN: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Whether this mistake is made on this thread.
fn seeded(bug: usize) -> bool {
    CHOSEN.get() == Some(bug)
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (option, value) = (args.next(), args.next());
    match (option.as_deref(), value) {
        (None, _) => report(None),
        (Some("--report"), Some(file)) => report(Some(&file)),
        _ => {
            eprintln!("usage: seeded-bugs [--report FILE]");
            ExitCode::from(2)
        }
    }
}

/// Looks for all bugs, and tells what was found as Markdown.
fn report(file: Option<&str>) -> ExitCode {
    let mut text = format!(
        "| bug | rule | first seed | seconds | breaks | and, in {MORE} more | the search needs |\n|---|---|---:|---:|---|---|---|\n",
    );
    let mut all = true;
    for (number, bug) in BUGS.iter().enumerate() {
        let (found, took) = find(number);
        all &= found.is_some();
        let (seed, promise, others) = match &found {
            Some((seed, violation)) => {
                let first = violation.promise;
                let others = breaks(number, seed + 1);
                let others = others.into_iter().filter(|other| *other != first);
                let others: Vec<_> = others.map(|other| format!("{other:?}")).collect();
                (seed.to_string(), format!("{first:?}"), others.join(", "))
            }
            None => (format!("none below {SEEDS}"), String::new(), String::new()),
        };
        let Bug { name, rule, .. } = bug;
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| {name} | {rule} | {seed} | {:.2} | {promise} | {others} | {} |",
            took.as_secs_f64(),
            search(number, LESS),
        );
        if let Some((seed, violation)) = found {
            eprintln!("{name}: seed {seed}, {violation}");
        }
    }
    let sound = play_all(0, SOUND, true, true, || CHOSEN.set(None));
    let _ = writeln!(
        text,
        "\nThe same build with no bug chosen: {} violations in {SOUND} schedules.",
        sound.violations.len()
    );
    print!("{text}");
    if let Some(file) = file
        && let Err(error) = std::fs::write(file, &text)
    {
        eprintln!("{file}: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::from(u8::from(!all || !sound.violations.is_empty()))
}

/// The first seed that finds a bug, with what it finds, and how long that took.
fn find(bug: usize) -> (Option<(u64, Violation)>, Duration) {
    let series = play_all(0, SEEDS, true, true, || CHOSEN.set(Some(bug)));
    (series.violations.into_iter().next(), series.took)
}

/// All that a bug breaks in the schedules from this one on.
fn breaks(bug: usize, from: u64) -> BTreeSet<Promise> {
    let series = play_all(from, MORE, false, true, || CHOSEN.set(Some(bug)));
    let violations = series.violations.into_iter();
    violations.map(|(_, violation)| violation.promise).collect()
}

/// How many choices the exhaustive search needs to break something by a bug, of those that a search that goes `less` deep
/// than on production has.
fn search(bug: usize, less: usize) -> String {
    let found = SEARCHES.iter().find_map(|(opening, depth)| {
        let search = Search::new(*opening, depth - less, move || CHOSEN.set(Some(bug)));
        let (choices, violation) = search.run().violation?;
        Some(format!(
            "{} choices, {:?}",
            choices.len(),
            violation.promise
        ))
    });
    found.unwrap_or_else(|| "more".to_owned())
}

#[cfg(test)]
mod tests {
    use super::{BUGS, CHOSEN, SEEDS, SOUND, find};
    use crate::search::{SEARCHES, Search};
    use crate::series::play_all;
    use crate::world::violation::Promise;

    #[test]
    fn every_seeded_bug_is_found() {
        let mut missed = Vec::new();
        for (number, bug) in BUGS.iter().enumerate() {
            match find(number) {
                (Some((seed, violation)), took) => {
                    let promise = format!("{:?}", violation.promise);
                    let expected = bug.breaks.contains(&promise.as_str());
                    assert!(expected, "{}: seed {seed}, {violation}", bug.name);
                    println!(
                        "{} ({}): seed {seed} in {took:.2?}: {violation}",
                        bug.name, bug.rule
                    );
                }
                (None, _) => missed.push(bug.name),
            }
        }
        assert!(missed.is_empty(), "not found in {SEEDS} seeds: {missed:?}");
    }

    /// So that the exhaustive search is seen to be able to fail.
    #[test]
    fn the_search_finds_a_bug_too() {
        let pred_gone = BUGS.iter().position(|bug| bug.name.contains("pred gone"));
        let bug = pred_gone.expect("the bug");
        let (opening, depth) = SEARCHES[3];
        let searched = Search::new(opening, depth, move || CHOSEN.set(Some(bug))).run();
        let (choices, violation) = searched.violation.expect("a violation");
        assert_eq!(
            violation.promise,
            Promise::Order,
            "{choices:?}: {violation}"
        );
    }

    #[test]
    fn without_a_bug_nothing_is_found() {
        let series = play_all(0, SOUND, true, true, || CHOSEN.set(None));
        assert!(series.violations.is_empty(), "{:?}", series.violations);
    }
}
