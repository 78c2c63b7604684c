//! B16: shutdown with very many locks held: linear in their number.

use std::time::Duration;

use super::crew::{Crew, number_of};
use super::figures::{Spread, Target, number, time};
use super::row::{Line, Outcome};
use super::server::Server;
use super::{Pace, say};
use crate::Result;

/// Far beyond what a linear cost takes, and enough for a quadratic one to be measured.
const PATIENCE: Duration = Duration::from_secs(300);
/// What noise may add to a linear cost.
const NOISE: f64 = 1.25;

pub(crate) fn run(pace: &Pace) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut fewer: Option<(u32, Spread)> = None;
    for locks in pace.shutdowns {
        let server = Server::start()?;
        let mut crew = Crew::ours("shutdown", &server, &[("names", locks)])?;
        let mut times = Vec::new();
        for _ in 0..pace.pairs {
            let answer = crew.single(Duration::ZERO, PATIENCE)?;
            if number_of(&answer, "ended")? != f64::from(*locks) {
                return Err(format!("not every body has ended: {answer}"));
            }
            times.push(number_of(&answer, "seconds")?);
        }
        crew.end()?;
        let spread = Spread::of(times.iter().copied()).ok_or("no round")?;
        let shown = number((*locks).into());
        say::note(format_args!("{shown} locks: {}", spread.shown(time)));
        if let Some((few, of_few)) = fewer {
            let target = Target::AtMost(f64::from(*locks) / f64::from(few) * NOISE);
            let figure = spread.median / of_few.median;
            outcome.lines.push(Line {
                row: "B16",
                work: format!("shutdown with {shown} locks held"),
                ours: spread.shown(time),
                against: format!("with {}", number(few.into())),
                theirs: of_few.shown(time),
                figure: format!("{} ×", number(figure)),
                measured: figure,
                target: Some(target),
            });
        }
        fewer = Some((*locks, spread));
    }
    Ok(outcome)
}
