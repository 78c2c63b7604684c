//! B21: a fenced transaction, compared with one that checks a token by hand.

use std::time::Duration;

use serde_json::Value;

use super::crew::{Crew, Kind};
use super::figures::{Spread, Target, number, time};
use super::row::{Line, Outcome};
use super::{Pace, say};
use crate::Result;

pub(crate) const PROGRAMS: &[Kind] = &[Kind::Fenced];

/// Time of a transaction, as a multiple of that with a column by hand.
const MOST: Target = Target::AtMost(1.1);

pub(crate) fn run(_pace: &Pace) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for (settings, disk, target) in [
        (&["fsync=on"][..], "PostgreSQL", Some(MOST)),
        // As on a disk that does not answer from a cache.
        (
            &["fsync=on", "commit_delay=1000", "commit_siblings=0"],
            "PostgreSQL whose commits take 1 ms more",
            None,
        ),
        // What is left where the disk costs nothing.
        (&["fsync=off"], "PostgreSQL that does not wait for its disk", None),
    ] {
        let settings: Vec<String> = settings.iter().map(ToString::to_string).collect();
        let mut crew = Crew::start(Kind::Fenced, 1, &settings)?;
        let measured = crew.single(Duration::ZERO, Duration::ZERO)?;
        crew.end()?;
        let times = |kind: &str| -> Vec<f64> {
            let times = measured[kind].as_array().into_iter().flatten();
            times.filter_map(Value::as_f64).collect()
        };
        let (fenced, by_hand, bare) = (times("fenced"), times("by_hand"), times("bare"));
        let spread = |times: &[f64]| Spread::of(times.iter().copied()).ok_or("no batch");
        for (against, theirs, target) in
            [("a token in a column, checked by hand", &by_hand, target), ("no fence", &bare, None)]
        {
            let ratio = Spread::ratio(&fenced, theirs).ok_or("no time passed")?;
            say::note(format_args!("{disk}, {against}: {} ×", ratio.shown(number)));
            outcome.lines.push(Line {
                row: "B21",
                work: format!("transaction of one write, fenced, on {disk}"),
                ours: spread(&fenced)?.shown(time),
                against: against.to_owned(),
                theirs: spread(theirs)?.shown(time),
                figure: format!("{} ×", ratio.shown(number)),
                measured: ratio.median,
                target,
            });
        }
    }
    outcome.notes.push(
        "B21: begin, one write and commit are three exchanges with the database; the fence is a part of begin.".to_owned(),
    );
    Ok(outcome)
}
