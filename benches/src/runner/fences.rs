//! Row B21: a fenced transaction, compared with one that checks a token by hand.

use serde_json::Value;

use super::Pace;
use super::crew::Crew;
use super::figures::{Target, time};
use super::row::{Line, Outcome};
use crate::Result;
use crate::kind::Kind;

pub(crate) fn run(_pace: &Pace) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for (settings, disk, target) in [
        (&["fsync=on"][..], "PostgreSQL", Some(Target::AtMost(1.1))),
        // As on a disk that does not confirm writes from a cache.
        (
            &["fsync=on", "commit_delay=1000", "commit_siblings=0"],
            "PostgreSQL whose commits take 1 ms more",
            None,
        ),
        // The cost that remains if the disk costs nothing.
        (&["fsync=off"], "PostgreSQL that does not wait for its disk", None),
    ] {
        let settings: Vec<String> = settings.iter().map(ToString::to_string).collect();
        let mut crew = Crew::start(Kind::Fenced, 1, &settings)?;
        let measured = crew.single()?;
        crew.end()?;
        let times = |kind: &str| -> Vec<f64> {
            let times = measured[kind].as_array().into_iter().flatten();
            times.filter_map(Value::as_f64).collect()
        };
        let by_hand = "a token in a column, checked by hand";
        for (against, theirs, target) in [(by_hand, "by_hand", target), ("no fence", "bare", None)]
        {
            let work = format!("transaction of one write, fenced, on {disk}");
            let (ours, theirs) = (times("fenced"), times(theirs));
            outcome.lines.push(Line::pairs(work, &ours, against, &theirs, time, target)?);
        }
    }
    outcome.notes.push(
        "begin, one write and commit are three exchanges with the database; the fence is a part of begin.".to_owned(),
    );
    Ok(outcome)
}
