//! P10: throughput on the same few names for long, and, in turn with it, that of bare keys: what the server itself loses.

use std::time::Duration;

use super::crew::{Crew, Done, Kind};
use super::figures::{Spread, Target, Verdict, number, rate};
use super::row::{Line, Outcome, Point};
use super::server::Server;
use super::{Pace, say};
use crate::Result;

const NAMES: usize = 60;
/// Turns of each.
const ROUNDS: usize = 60;
/// So many of them at the beginning are compared with as many at the end: of ten minutes, one.
const COMPARED: usize = ROUNDS / 10;
/// This part of each turn is not counted: by then all are at work.
const LEAD: f64 = 0.1;

pub(crate) fn run(pace: &Pace) -> Result<Outcome> {
    let server = Server::start()?;
    let turn = pace.endurance / u32::try_from(2 * ROUNDS).unwrap_or(u32::MAX);
    let lead = turn.mul_f64(LEAD);
    let window = turn - lead;
    say::note(format_args!("{:?}", pace.endurance));
    let args = [
        "--work",
        "calls",
        "--endpoint",
        &server.endpoint(),
        "--tasks",
        &NAMES.to_string(),
        "--names",
        &NAMES.to_string(),
        "--seconds",
        &window.as_secs_f64().to_string(),
    ]
    .map(str::to_owned);
    let mut ours = Endurance::start(Kind::Ours, &args)?;
    let mut bare = Endurance::start(Kind::Stored, &args)?;
    for round in 1..=ROUNDS {
        ours.turn(lead, window)?;
        bare.turn(lead, window)?;
        if round % COMPARED == 0 {
            let now = |of: &Endurance| of.rates.last().copied().map_or_else(String::new, rate);
            let (ours, bare) = (now(&ours), now(&bare));
            say::note(format_args!(
                "round {round} of {ROUNDS}: ours {ours}, bare keys {bare}"
            ));
        }
    }
    let (ours, bare) = (ours.end()?, bare.end()?);
    let target = Target::AtLeast(0.95);
    let mut outcome = Outcome::default();
    for (who, rates) in [("", &ours), ("bare keys, a lease and a record: ", &bare)] {
        let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len() as f64;
        let (first, last) = (mean(&rates[..COMPARED]), mean(&rates[ROUNDS - COMPARED..]));
        let target = who.is_empty().then_some(target);
        outcome.lines.push(Line {
            row: "P10",
            work: format!(
                "{who}{NAMES} tasks, {NAMES} names, the last tenth of {:?}",
                pace.endurance
            ),
            ours: rate(last),
            against: "the first tenth".to_owned(),
            theirs: rate(first),
            figure: format!("{} ×", number(last / first)),
            target,
            verdict: target.map_or(Verdict::Beside, |target| target.verdict(last / first)),
        });
        let spread = Spread::of(rates.iter().copied()).ok_or("there was no time")?;
        outcome.notes.push(format!(
            "P10, {who}calls a second in turns of {} s: {}.",
            number(window.as_secs_f64()),
            spread.shown(number)
        ));
    }
    let every = 2.0 * turn.as_secs_f64();
    outcome.points = (0..)
        .zip(&ours)
        .map(|(round, rate)| Point::Time(f64::from(round) * every, *rate))
        .collect();
    Ok(outcome)
}

/// One process, turn after turn.
struct Endurance {
    crew: Crew,
    rates: Vec<f64>,
}

impl Endurance {
    fn start(kind: Kind, args: &[String]) -> Result<Self> {
        Ok(Self {
            crew: Crew::start(kind, 1, args)?,
            rates: Vec::new(),
        })
    }

    fn turn(&mut self, lead: Duration, window: Duration) -> Result<()> {
        let done = Done::of(&self.crew.round(lead, window)?)?;
        if done.total != done.witnessed {
            return Err("the locks do not exclude".to_owned());
        }
        self.rates.push(done.rate);
        Ok(())
    }

    fn end(self) -> Result<Vec<f64>> {
        self.crew.end()?;
        Ok(self.rates)
    }
}
