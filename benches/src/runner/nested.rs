//! B14: tasks that hold a lock each and wait for one hot name, which two processes share.

use std::time::Duration;

use serde_json::Value;

use super::crew::{Crew, Kind, Witness, number_of};
use super::figures::{Spread, Target, number, rate, time};
use super::row::{Line, Outcome};
use super::server::Server;
use super::{Pace, say};
use crate::Result;

const PROCESSES: usize = 2;
/// By then every task waits, and its engine has published that it does.
const LEAD: Duration = Duration::from_secs(3);
/// Locks a second, as a multiple of those without outer locks.
const LEAST: Target = Target::AtLeast(0.8);
/// Processor time of a lock, as a multiple of that with the fewest tasks: what noise may add to no growth.
const MOST: Target = Target::AtMost(1.2);

/// Rounds of one kind.
struct Side {
    crew: Crew,
    witness: Witness,
    seen: f64,
    rates: Vec<f64>,
    /// Processor time of each lock, of both processes together.
    each: Vec<f64>,
    failed: f64,
}

pub(crate) fn run(pace: &Pace) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut fewest = None;
    for tasks in pace.nested {
        let server = Server::start()?;
        let mut plain = Side::start(&server, *tasks, false, pace)?;
        let mut nested = Side::start(&server, *tasks, true, pace)?;
        for pair in 1..=pace.pairs {
            plain.round(pace)?;
            nested.round(pace)?;
            let last = |side: &Side| rate(side.rates.last().copied().unwrap_or_default());
            say::note(format_args!(
                "{tasks} tasks, {pair}/{}: {} nested, {} without outer locks",
                pace.pairs,
                last(&nested),
                last(&plain)
            ));
        }
        let served = Spread::ratio(&nested.rates, &plain.rates)
            .ok_or("without outer locks no call was served")?;
        let spread = |rates: &[f64]| Spread::of(rates.iter().copied()).ok_or("no round");
        outcome.lines.push(Line {
            row: "B14",
            work: format!(
                "{tasks} tasks of 2 processes, each under a lock of its own, one hot name"
            ),
            ours: spread(&nested.rates)?.shown(number) + "/s",
            against: "without outer locks".to_owned(),
            theirs: spread(&plain.rates)?.shown(number) + "/s",
            figure: format!("{} ×", served.shown(number)),
            measured: served.median,
            target: Some(LEAST),
        });
        // Infinite where no call was served.
        let shown = |each: f64| match each.is_finite() {
            true => time(each),
            false => "no call was served".to_owned(),
        };
        let each = spread(&nested.each)?.median;
        match fewest {
            None => fewest = Some((*tasks, each)),
            Some((few, of_few)) => {
                let figure = each / of_few;
                outcome.lines.push(Line {
                    row: "B14",
                    work: format!("processor time of a lock, {tasks} tasks"),
                    ours: shown(each),
                    against: format!("{few} tasks"),
                    theirs: shown(of_few),
                    figure: match figure.is_finite() {
                        true => format!("{} ×", number(figure)),
                        false => "no ratio".to_owned(),
                    },
                    measured: figure,
                    target: Some(MOST),
                });
            }
        }
        if nested.failed > 0.0 {
            let failed = nested.failed;
            outcome.notes.push(format!(
                "B14, {tasks} tasks: {failed} outer or inner calls failed, their locks lost or etcd out of reach for them."
            ));
        }
        plain.crew.end()?;
        nested.crew.end()?;
    }
    Ok(outcome)
}

impl Side {
    fn start(server: &Server, tasks: usize, outer: bool, pace: &Pace) -> Result<Self> {
        let witness = Witness::new(1)?;
        let crew = Crew::at_work(
            Kind::Ours,
            PROCESSES,
            "nested",
            &server.endpoint(),
            &[
                ("tasks", &(tasks / PROCESSES)),
                ("outer", &outer),
                ("seconds", &window(pace).as_secs_f64()),
                ("witness", &witness.path().display()),
            ],
        )?;
        Ok(Self { crew, witness, seen: 0.0, rates: Vec::new(), each: Vec::new(), failed: 0.0 })
    }

    fn round(&mut self, pace: &Pace) -> Result<()> {
        let answers = self.crew.round(LEAD, window(pace))?;
        let sum = |field: &str| -> Result<f64> {
            answers.iter().map(|answer: &Value| number_of(answer, field)).sum()
        };
        let count = sum("count")?;
        self.seen += sum("total")?;
        self.failed += sum("failed")?;
        // A body that ends by the loss of its lock is seen, and not counted.
        let (seen, counted) = (self.witness.seen()? as f64, self.seen);
        if seen < counted || (seen > counted && self.failed == 0.0) {
            return Err(format!(
                "the hot name does not exclude: of {counted} calls the witness has counted {seen}"
            ));
        }
        self.rates.push(count / window(pace).as_secs_f64());
        self.each.push(sum("processor")? / count);
        Ok(())
    }
}

/// Bodies take long in this row, so that there are few a second.
fn window(pace: &Pace) -> Duration {
    pace.window * 2
}
