//! Report of a series of schedules, as Markdown that is readable in a terminal.

use std::fmt::Write as _;

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
    // Writing to a string cannot fail.
    for (what, many) in &series.tally.happened {
        let _ = writeln!(text, "| {what:?} | {many} |");
    }
    text += "\n| input | most steps | longest |\n|---|---:|---:|\n";
    for (kind, (steps, took)) in &series.tally.costs {
        let _ = writeln!(text, "| {kind} | {steps} | {took:.1?} |");
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
        let _ = writeln!(
            text,
            "| {opening} | {depth} | {states} | {ways} | {violations} | {seconds:.1} |"
        );
    }
    text
}
