//! B10: throughput on the same few names for long. Alone on its etcd: another client that puts keys there fills the history that
//! etcd goes through for ours.

use super::crew::{Crew, Done};
use super::figures::{Spread, Target, number, rate};
use super::row::{Line, Outcome, Point};
use super::server::Server;
use super::{Pace, say};
use crate::Result;

const NAMES: usize = 60;
const ROUNDS: usize = 60;
/// So many of them at the beginning are compared with as many at the end: of ten minutes, one.
const COMPARED: usize = ROUNDS / 10;
/// This part of each round is not counted: by then all are at work.
const LEAD: f64 = 0.1;

pub(crate) fn run(pace: &Pace) -> Result<Outcome> {
    let server = Server::start()?;
    let round = pace.endurance / u32::try_from(ROUNDS).unwrap_or(u32::MAX);
    let lead = round.mul_f64(LEAD);
    let window = round - lead;
    say::note(format_args!("{:?}", pace.endurance));
    let seconds = window.as_secs_f64();
    let mut crew = Crew::ours(
        "calls",
        &server,
        &[("tasks", &NAMES), ("names", &NAMES), ("seconds", &seconds)],
    )?;
    let mut rates = Vec::new();
    for at in 1..=ROUNDS {
        let done = Done::of(&crew.round(lead, window)?)?;
        if done.total != done.witnessed {
            return Err("the locks do not exclude".to_owned());
        }
        rates.push(done.rate);
        if at % COMPARED == 0 {
            say::note(format_args!("round {at} of {ROUNDS}: {}", rate(done.rate)));
        }
    }
    crew.end()?;
    let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len() as f64;
    let (first, last) = (mean(&rates[..COMPARED]), mean(&rates[ROUNDS - COMPARED..]));
    let spread = Spread::of(rates.iter().copied()).ok_or("there was no time")?;
    let every = round.as_secs_f64();
    Ok(Outcome {
        lines: vec![Line {
            row: "B10",
            work: format!("{NAMES} tasks, {NAMES} names, the last tenth of {:?}", pace.endurance),
            ours: rate(last),
            against: "the first tenth".to_owned(),
            theirs: rate(first),
            figure: format!("{} ×", number(last / first)),
            measured: last / first,
            target: Some(Target::AtLeast(0.95)),
        }],
        notes: vec![format!(
            "B10, calls a second in rounds of {} s: {}.",
            number(seconds),
            spread.shown(number)
        )],
        points: (0..)
            .zip(&rates)
            .map(|(round, rate)| Point::Time(f64::from(round) * every, *rate))
            .collect(),
    })
}
