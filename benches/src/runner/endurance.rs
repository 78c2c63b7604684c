//! P10: throughput on the same few names for long.

use std::thread;
use std::time::{Duration, Instant};

use super::crew::{Crew, Done, Kind};
use super::figures::{Spread, Target, number, rate};
use super::row::{Line, Outcome, Point};
use super::server::Server;
use super::{Pace, say};
use crate::Result;

const NAMES: usize = 60;
/// By then all have connected.
const LEAD: Duration = Duration::from_secs(1);
/// How often the person at the terminal hears that it goes on.
const NEWS: Duration = Duration::from_secs(60);
/// Stretches whose throughput is told.
const SLICES: usize = 60;
/// So many of them at the beginning are compared with as many at the end: of ten minutes, one.
const COMPARED: usize = SLICES / 10;

pub(crate) fn run(pace: &Pace) -> Result<Outcome> {
    let server = Server::start()?;
    let slice = pace.endurance.as_secs_f64() / SLICES as f64;
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
        &pace.endurance.as_secs_f64().to_string(),
        "--slice",
        &slice.to_string(),
    ];
    let mut crew = Crew::start(Kind::Ours, 1, &args.map(str::to_owned))?;
    crew.order(LEAD)?;
    progress(&server, pace.endurance)?;
    let done = Done::of(&crew.answers(LEAD)?)?;
    crew.end()?;
    if done.total != done.witnessed {
        return Err("the locks do not exclude".to_owned());
    }
    if done.slices.len() != SLICES {
        return Err(format!(
            "of {SLICES} stretches {} had calls",
            done.slices.len()
        ));
    }
    let rates: Vec<f64> = done.slices.iter().map(|count| count / slice).collect();
    let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len() as f64;
    let (first, last) = (mean(&rates[..COMPARED]), mean(&rates[SLICES - COMPARED..]));
    let target = Target::AtLeast(0.95);
    let part = Duration::from_secs_f64(slice * COMPARED as f64);
    let line = Line {
        row: "P10",
        work: format!(
            "{NAMES} tasks, {NAMES} names, the last of {:?}",
            pace.endurance
        ),
        ours: rate(last),
        against: format!("the first {part:?}"),
        theirs: rate(first),
        figure: format!("{} ×", number(last / first)),
        target: Some(target),
        verdict: target.verdict(last / first),
    };
    let spread = Spread::of(rates.iter().copied()).ok_or("there was no time")?;
    Ok(Outcome {
        lines: vec![line],
        points: (0..)
            .zip(&rates)
            .map(|(at, rate)| Point::Time(f64::from(at) * slice, *rate))
            .collect(),
        notes: vec![format!(
            "P10, calls a second in stretches of {} s: {}.",
            number(slice),
            spread.shown(number)
        )],
    })
}

/// Says now and then, by etcd's own count, how fast it goes; until it is over.
fn progress(server: &Server, length: Duration) -> Result<()> {
    let puts = || server.metric("etcd_mvcc_put_total", "");
    let start = Instant::now();
    let mut before = puts()?;
    while start.elapsed() < length {
        let stretch = NEWS.min(length.saturating_sub(start.elapsed()));
        thread::sleep(stretch);
        let now = puts()?;
        let speed = (now - before) / stretch.as_secs_f64();
        say::note(format_args!(
            "{:.0} s of {:.0}: {} put at etcd",
            start.elapsed().as_secs_f64(),
            length.as_secs_f64(),
            rate(speed)
        ));
        before = now;
    }
    Ok(())
}
