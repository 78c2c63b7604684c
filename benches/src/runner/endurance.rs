//! Row B10: throughput on the same few names for long. It is alone on its etcd, because keys of another client would fill the
//! history that etcd searches for ours.

use std::time::Duration;

use super::figures::{Spread, Target, number, rate};
use super::row::{Line, Outcome};
use super::server::Server;
use super::side::{Crowd, Side};
use super::{Pace, note};
use crate::Result;
use crate::kind::Kind;

const NAMES: usize = 60;
const ROUNDS: usize = 60;
/// Number of rounds at the beginning that are compared with as many at the end: one minute of ten.
const COMPARED: usize = ROUNDS / 10;

pub(crate) fn run(pace: &Pace) -> Result<Outcome> {
    let server = Server::start()?;
    let crowd = Crowd { processes: 1, tasks: NAMES, names: NAMES };
    let endurance = Duration::from_secs(pace.either(600, 10));
    let rounds = Pace { window: endurance.div_f64(ROUNDS as f64), ..pace.clone() };
    let mut side = Side::start(Kind::Ours, "calls", crowd, &server.endpoint(), &[], &rounds)?;
    for at in 1..=ROUNDS {
        side.round()?;
        if at % COMPARED == 0 {
            note(format_args!("round {at} of {ROUNDS}: {}", rate(side.last())));
        }
    }
    side.crew.end()?;
    let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len() as f64;
    let (first, last) = (mean(&side.rates[..COMPARED]), mean(&side.rates[ROUNDS - COMPARED..]));
    let work = format!("{NAMES} tasks, {NAMES} names, the last tenth of {:?}", endurance);
    let least = Target::AtLeast(0.95);
    let mut outcome =
        Outcome::of([Line::medians(work, last, "the first tenth", first, rate, least)]);
    let spread = Spread::of(&side.rates)?.shown(number);
    outcome.notes.push(format!("calls a second in rounds of {:?}: {spread}.", rounds.window));
    Ok(outcome)
}
