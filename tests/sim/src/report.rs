//! What a series came to, as Markdown that a terminal can show.

use std::fmt::Write as _;

use crate::mistakes::{SEEDS, SOUND, Sought};
use crate::search::Searched;
use crate::search::board::Opening;
use crate::series::Series;

pub(crate) fn schedules(series: &Series) -> String {
    let seconds = series.took.as_secs_f64();
    let mut text = format!(
        "{} schedules, {} steps, {} violations in {seconds:.1} s\n\n| what | how often |\n|---|---:|\n",
        series.schedules,
        series.steps,
        series.violations.len(),
    );
    for (what, many) in &series.tally.0 {
        // Writing to a string does not fail.
        let _ = writeln!(text, "| {what:?} | {many} |");
    }
    text
}

pub(crate) fn searches(searches: &[(Opening, usize, Searched)]) -> String {
    let mut text = String::from(
        "| opening | choices deep | states | ways to them | violations | seconds |\n|---|---:|---:|---:|---:|---:|\n",
    );
    for (opening, depth, searched) in searches {
        let (states, ways) = (searched.states, searched.ways);
        let violations = u8::from(searched.violation.is_some());
        let seconds = searched.took.as_secs_f64();
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| {opening} | {depth} | {states} | {ways} | {violations} | {seconds:.1} |"
        );
    }
    text
}

pub(crate) fn mistakes(sought: &Sought) -> String {
    let mut text = String::from("| mistake | rule | first seed | breaks |\n|---|---|---:|---|\n");
    for (known, found) in &sought.mistakes {
        let (seed, promise) = match found {
            Some((seed, violation)) => (seed.to_string(), format!("{:?}", violation.promise)),
            None if known.breaks.is_empty() => ("a scenario".to_owned(), String::new()),
            None => (format!("none below {SEEDS}"), String::new()),
        };
        // Writing to a string does not fail.
        let _ = writeln!(text, "| {:?} | {} | {seed} | {promise} |", known.mistake, known.rule);
    }
    let _ = writeln!(
        text,
        "\nThe same cores without a mistake: {} violations in {SOUND} schedules.",
        sought.sound
    );
    text
}
