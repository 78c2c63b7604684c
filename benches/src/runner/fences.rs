//! B21: a fenced transaction, compared with one that checks a token by hand.

use super::figures::{Spread, Target, number, time};
use super::row::{Line, Outcome};
use super::{Pace, say};
use crate::Result;
use crate::fenced;

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
        (
            &["fsync=off"],
            "PostgreSQL that does not wait for its disk",
            None,
        ),
    ] {
        let measured = fenced::measure(settings).map_err(|error| error.to_string())?;
        let spread = |times: &[f64]| Spread::of(times.iter().copied()).ok_or("no batch");
        for (against, theirs, target) in [
            (
                "a token in a column, checked by hand",
                &measured.by_hand,
                target,
            ),
            ("no fence", &measured.bare, None),
        ] {
            let ratio = Spread::ratio(&measured.fenced, theirs).ok_or("no time passed")?;
            say::note(format_args!("{disk}, {against}: {} ×", ratio.shown(number)));
            outcome.lines.push(Line {
                row: "B21",
                work: format!("transaction of one write, fenced, on {disk}"),
                ours: spread(&measured.fenced)?.shown(time),
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
