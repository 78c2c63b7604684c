//! B8: what very many names leave behind, and what a waiter takes.

use std::time::Duration;

use serde_json::Value;

use super::crew::{Crew, Kind, number_of};
use super::figures::{Target, bytes, number, rate};
use super::row::{Line, Outcome};
use super::server::Server;
use super::{Pace, say};
use crate::Result;

/// Beyond any machine we know.
const PATIENCE: Duration = Duration::from_secs(600);

pub(crate) fn run(pace: &Pace) -> Result<Outcome> {
    let mut outcome = distinct(pace)?;
    outcome.add(waiters(pace)?);
    Ok(outcome)
}

fn worker(kind: Kind, work: &str, tasks: u32, names: u32) -> Result<Value> {
    let server = Server::start()?;
    let mut crew =
        Crew::at_work(kind, 1, work, &server.endpoint(), &[("tasks", &tasks), ("names", &names)])?;
    let answer = crew.single(Duration::ZERO, PATIENCE)?;
    crew.end()?;
    Ok(answer)
}

fn distinct(pace: &Pace) -> Result<Outcome> {
    let answer = worker(Kind::Ours, "distinct", 1_024, pace.distinct)?;
    let (start, end) = (number_of(&answer, "start")?, number_of(&answer, "end")?);
    let speed = number_of(&answer, "count")? / number_of(&answer, "seconds")?;
    say::note(format_args!(
        "{} names, {}: {} before, {} after",
        number(pace.distinct.into()),
        rate(speed),
        bytes(start),
        bytes(end)
    ));
    Ok(Outcome::of(Line {
        row: "B8",
        work: format!(
            "resident memory after {} names, each once, by 1,024 tasks at {}",
            number(pace.distinct.into()),
            rate(speed)
        ),
        ours: bytes(end),
        against: "before, after the same traffic on 2,000 names".to_owned(),
        theirs: bytes(start),
        figure: format!("{:.3} ×", end / start),
        measured: end / start,
        target: Some(Target::AtMost(1.1)),
    }))
}

fn waiters(pace: &Pace) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let cost = |kind, names| -> Result<f64> {
        let answer = worker(kind, "waiters", pace.waiters, names)?;
        let waiters = number_of(&answer, "waiters")?;
        if number_of(&answer, "passed")? != waiters {
            return Err("not every waiter was admitted".to_owned());
        }
        let each = (number_of(&answer, "waiting")? - number_of(&answer, "before")?) / waiters;
        let seconds = number_of(&answer, "seconds")?;
        say::note(format_args!(
            "{}, {names} names: {} a waiter, all served in {}",
            kind.title(),
            bytes(each),
            super::figures::time(seconds)
        ));
        Ok(each)
    };
    let tasks = cost(Kind::Mutex, 1)?;
    for names in [1, 1_000] {
        let each = cost(Kind::Ours, names)?;
        let own = each - tasks;
        outcome.lines.push(Line {
            row: "B8",
            work: format!(
                "{} waiters at once, {} in all, a tokio task each",
                number(pace.waiters.into()),
                match names {
                    1 => "one name".to_owned(),
                    names => format!("{} names", number(names.into())),
                }
            ),
            ours: bytes(each) + " a waiter",
            against: "the same tasks waiting for a mutex of tokio's".to_owned(),
            theirs: bytes(tasks),
            figure: format!("{} more", bytes(own)),
            measured: own,
            target: Some(Target::AtMost(1_024.0)),
        });
    }
    Ok(outcome)
}
