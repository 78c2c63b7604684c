//! B17: `at_least` on very many names in a row: a call costs the same at the end as at the beginning.

use std::time::Duration;

use super::crew::{Crew, number_of};
use super::figures::{Target, number, rate, time};
use super::row::{Line, Outcome};
use super::server::Server;
use super::{Pace, say};
use crate::Result;

const TASKS: u32 = 16;
const PATIENCE: Duration = Duration::from_secs(900);
/// Processor time of a call, as a multiple of that at the beginning.
const MOST: Target = Target::AtMost(1.1);

pub(crate) fn run(pace: &Pace) -> Result<Outcome> {
    let server = Server::start()?;
    let mut crew =
        Crew::ours("retained", &server, &[("tasks", &TASKS), ("names", &pace.retained)])?;
    let answer = crew.single(Duration::ZERO, PATIENCE)?;
    crew.end()?;
    let each = number_of(&answer, "each")?;
    let [first, last] = [number_of(&answer, "first")? / each, number_of(&answer, "last")? / each];
    let names = number(pace.retained.into());
    let speed = rate(f64::from(pace.retained) / number_of(&answer, "seconds")?);
    say::note(format_args!("{names} names at {speed}"));
    let figure = last / first;
    Ok(Outcome::of(Line {
        row: "B17",
        work: format!(
            "processor time of a call with `at_least`, the last tenth of {names} names, by {TASKS} tasks at {speed}"
        ),
        ours: time(last),
        against: "the first tenth".to_owned(),
        theirs: time(first),
        figure: format!("{} ×", number(figure)),
        measured: figure,
        target: Some(MOST),
    }))
}
