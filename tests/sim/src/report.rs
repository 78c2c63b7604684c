//! What a series came to, as Markdown that a terminal can show.

use std::fmt::Write as _;

use crate::mistakes::{MORE, SEEDS, SOUND, Sought, known};
use crate::search::Searched;
use crate::search::board::{Modes, Opening};
use crate::series::Series;

pub(crate) fn schedules(series: &Series) -> String {
    let mut text = String::new();
    let seconds = series.took.as_secs_f64();
    let rows = [
        ("schedules", series.schedules),
        ("steps", series.steps),
        ("calls served", series.grants),
        ("of these, handed on in the process", series.handovers),
        ("of all, shared or by permit", series.together),
        ("calls refused for a deadlock", series.deadlocks),
        ("faults injected", series.faults.sum()),
        ("violations", series.violations.len() as u64),
    ];
    row(&mut text, "", None);
    for (what, many) in rows {
        row(&mut text, what, Some(many));
    }
    let _ = writeln!(
        text,
        "\n{seconds:.1} s, {:.0} steps a second\n",
        series.steps as f64 / seconds.max(f64::MIN_POSITIVE)
    );
    row(&mut text, "fault", None);
    for (what, many) in series.faults.rows() {
        row(&mut text, what, Some(many));
    }
    text
}

pub(crate) fn searches(searches: &[(Opening, usize, Searched)]) -> String {
    let mut text = String::from(
        "| clients | modes | holding or waiting at first | time | choices deep | states | ways to them | violations | seconds |\n\
         |---:|---|---:|---|---:|---:|---:|---:|---:|\n",
    );
    for (opening, depth, searched) in searches {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {depth} | {} | {} | {} | {:.1} |",
            opening.clients,
            match opening.modes {
                Modes::Exclusive => "exclusive",
                Modes::Shared => "shared and exclusive",
                Modes::Permits => "two permits",
            },
            opening.queued,
            if opening.time { "goes on" } else { "stands still" },
            searched.states,
            searched.ways,
            u8::from(searched.violation.is_some()),
            searched.took.as_secs_f64(),
        );
    }
    text
}

pub(crate) fn mistakes(sought: &Sought) -> String {
    let mut text = format!(
        "| mistake | rule | first seed | seconds | breaks | and, in {MORE} more | the search needs |\n|---|---|---:|---:|---|---|---|\n",
    );
    for found in &sought.mistakes {
        let known = known(found.mistake);
        let (seed, promise) = match &found.first {
            Some((seed, violation)) => (seed.to_string(), format!("{:?}", violation.promise)),
            None if known.breaks.is_empty() => ("a scenario".to_owned(), String::new()),
            None => (format!("none below {SEEDS}"), String::new()),
        };
        let others: Vec<_> = found.others.iter().map(|it| format!("{it:?}")).collect();
        let search = match found.search {
            Some((choices, promise)) => format!("{choices} choices, {promise:?}"),
            None => "more".to_owned(),
        };
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| {} | {} | {seed} | {:.2} | {promise} | {} | {search} |",
            known.words,
            known.rule,
            found.took.as_secs_f64(),
            others.join(", "),
        );
    }
    let _ = writeln!(
        text,
        "\nThe same cores without a mistake: {} violations in {SOUND} schedules.",
        sought.sound
    );
    text
}

/// A row of a table of two columns; without a number its head.
fn row(text: &mut String, what: &str, many: Option<u64>) {
    // Writing to a string does not fail.
    let _ = match many {
        Some(many) => writeln!(text, "| {what:<40} | {many:>10} |"),
        None => {
            writeln!(text, "| {what:<40} | {:>10} |\n|{}|{}:|", "", "-".repeat(42), "-".repeat(11))
        }
    };
}
