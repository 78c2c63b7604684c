//! Row B14: tasks that each hold a lock and wait for one hot name, which two processes share.

use std::time::Duration;

use super::figures::{Spread, Target, rate, time};
use super::row::{Line, Outcome};
use super::server::Server;
use super::side::{Crowd, Side};
use super::{Pace, note};
use crate::Result;
use crate::kind::Kind;

const PROCESSES: usize = 2;
/// Time by which every task waits, with its own key.
const LEAD: Duration = Duration::from_secs(3);
/// Limit of the processor time per lock, as a multiple of that with the fewest tasks: no growth, plus noise.
const MOST: Target = Target::AtMost(1.2);

pub(crate) fn run(pace: &Pace) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut fewest = None;
    // Bodies take long in this row, so there are few per second.
    let long = Pace { window: pace.window * 2, ..pace.clone() };
    for tasks in pace.either(&[100, 200, 400, 800][..], &[100]) {
        let server = Server::start()?;
        let start = |outer: bool| -> Result<Side> {
            let crowd = Crowd { processes: PROCESSES, tasks: tasks / PROCESSES, names: 1 };
            let (endpoint, more) = (server.endpoint(), ("outer", &outer as _));
            let mut side = Side::start(Kind::Ours, "nested", crowd, &endpoint, &[more], &long)?;
            side.lead = LEAD;
            Ok(side)
        };
        let (mut plain, mut nested) = (start(false)?, start(true)?);
        for pair in 1..=pace.pairs {
            plain.round()?;
            nested.round()?;
            let (nested, plain) = (rate(nested.last()), rate(plain.last()));
            note(format_args!(
                "{tasks} tasks, {pair}: {nested} nested, {plain} without outer locks"
            ));
        }
        let work =
            format!("{tasks} tasks of 2 processes, each under a lock of its own, one hot name");
        let (ours, theirs, least) = (&nested.rates, &plain.rates, Target::AtLeast(0.8));
        outcome.lines.push(Line::pairs(work, ours, "without outer locks", theirs, rate, least)?);
        // Infinite if no call was served.
        let each = Spread::of(&nested.processor)?.median;
        let (few, of_few) = *fewest.get_or_insert((tasks, each));
        if few != tasks {
            let work = format!("processor time of a lock, {tasks} tasks");
            outcome.lines.push(Line::medians(
                work,
                each,
                format!("{few} tasks"),
                of_few,
                time,
                MOST,
            ));
        }
        if nested.failed > 0.0 {
            outcome.notes.push(format!(
                "{tasks} tasks: {} outer or inner calls failed, their locks lost or etcd out of reach for them.",
                nested.failed
            ));
        }
        plain.crew.end()?;
        nested.crew.end()?;
    }
    Ok(outcome)
}
