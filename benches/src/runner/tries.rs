//! B15: single tries, thousands at once: what one costs does not grow with their number.

use std::time::Duration;

use super::crew::{Crew, number_of};
use super::figures::{Spread, Target, number, time};
use super::row::{Line, Outcome};
use super::server::Server;
use super::{Pace, say};
use crate::Result;

const MODES: [(&str, &str); 3] = [
    ("permits", "for 5 permits"),
    ("shared", "shared, behind a writer of another process"),
    ("exclusive", "exclusive, behind another process"),
];
/// Far beyond what a linear cost takes.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time of all tries, as a multiple of that of half of them.
const MOST: Target = Target::AtMost(2.5);

pub(crate) fn run(pace: &Pace) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for (mode, what) in MODES {
        let server = Server::start()?;
        let mut crew = Crew::ours("tries", &server, &[("tasks", &pace.tries), ("mode", &mode)])?;
        // The first round opens connections and makes threads.
        crew.single(Duration::ZERO, PATIENCE)?;
        let (mut halves, mut wholes) = (Vec::new(), Vec::new());
        for _ in 0..pace.pairs {
            let answer = crew.single(Duration::ZERO, PATIENCE)?;
            halves.push(number_of(&answer, "half")?);
            wholes.push(number_of(&answer, "whole")?);
        }
        crew.end()?;
        let ratio = Spread::ratio(&wholes, &halves).ok_or("tries take no time")?;
        let spread = |times: &[f64]| Spread::of(times.iter().copied()).ok_or("no round");
        let tries = number(pace.tries.into());
        let half = number((pace.tries / 2).into());
        say::note(format_args!("{tries} tries {what}: {} ×", ratio.shown(number)));
        outcome.lines.push(Line {
            row: "B15",
            work: format!("{tries} single tries at once, {what}"),
            ours: spread(&wholes)?.shown(time),
            against: format!("{half} of them"),
            theirs: spread(&halves)?.shown(time),
            figure: format!("{} ×", ratio.shown(number)),
            measured: ratio.median,
            target: Some(MOST),
        });
    }
    Ok(outcome)
}
