//! Row B20: what spans and metrics cost a call on the embedded etcd, without a subscriber and a recorder, and with idle ones.
//!
//! Features change a program's code, so `benches/telemetry` is built as two programs. The layout of code and data in memory makes
//! a difference too. So the processes are started repeatedly, and the program without features is also compared with itself.

use super::crew::{Crew, number_of};
use super::figures::{Spread, Target, micros};
use super::row::{Line, Outcome};
use super::{Pace, note};
use crate::Result;
use crate::kind::Kind;

/// Sides that run in turn. The others are compared with the first; the targets are multiples of its time per call.
const SIDES: [(Kind, &str, Option<Target>); 4] = [
    (Kind::Bare, "", None),
    (Kind::Bare, "the same program in another process", None),
    (Kind::Unobserved, "spans and metrics, no subscriber or recorder", Some(Target::AtMost(1.01))),
    (Kind::Observed, "subscriber and recorder that do nothing", Some(Target::AtMost(1.1))),
];

pub(crate) fn run(pace: &Pace) -> Result<Outcome> {
    // For each side, the medians of each start: microseconds, and ratios to the first side, batch by batch.
    let mut sides = SIDES.map(|_| (Vec::new(), Vec::new()));
    let (starts, each) = pace.either((8, 100), (2, 20));
    for start in 1..=starts {
        let batches = batches(each)?;
        for ((micros, ratios), batch) in sides.iter_mut().zip(&batches) {
            micros.push(Spread::of(batch)?.median);
            ratios.push(Spread::ratio(batch, &batches[0])?.median);
        }
        let last = sides.iter().skip(1).map(|(_, ratios)| thousandths(ratios[start - 1]));
        let shown = last.collect::<Vec<_>>().join(" · ");
        note(format_args!("{start}/{starts}: itself, unobserved, observed: {shown} ×"));
    }
    let mut outcome = Outcome::default();
    let bare = Spread::of(&sides[0].0)?;
    for ((_, work, target), (times, ratios)) in SIDES.iter().zip(&sides).skip(1) {
        let (ours, ratio) = (Spread::of(times)?, Spread::of(ratios)?);
        let work = format!("annotated call, {work}");
        outcome.lines.push(Line {
            figure: format!("{} ×", ratio.shown(thousandths)),
            measured: ratio.median,
            ..Line::medians(work, ours, Kind::Bare.title(), bare, micros, *target)
        });
    }
    outcome.notes.push(format!(
        "medians of {starts} starts of all programs (least to most), of {each} batches in turn each. What a program is of itself says \
         how much of a difference means nothing."
    ));
    Ok(outcome)
}

/// Starts all sides, and makes them run their batches in turn; returns microseconds per call.
fn batches(each: usize) -> Result<[Vec<f64>; SIDES.len()]> {
    let mut crews = Vec::new();
    for (kind, ..) in SIDES {
        crews.push(Crew::start(kind, 1, &[])?);
    }
    let mut micros = SIDES.map(|_| Vec::new());
    for round in 0..each {
        for at in 0..SIDES.len() {
            // Another side begins each time.
            let at = (at + round) % SIDES.len();
            micros[at].push(number_of(&crews[at].single()?, "micros")?);
        }
    }
    crews.into_iter().try_for_each(Crew::end)?;
    Ok(micros)
}

/// Formats a ratio of which a hundredth matters.
fn thousandths(ratio: f64) -> String {
    format!("{ratio:.3}")
}
