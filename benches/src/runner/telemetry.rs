//! B20: what spans and metrics cost a call on the embedded etcd, without a subscriber and a recorder, and with ones that do nothing.
//!
//! Features change a program's code, so there are two programs, of `benches/telemetry`. Where code and data of a process lie
//! makes a difference too. So the processes are started again and again, and the program without features also meets itself.

use std::time::Duration;

use super::crew::{Crew, Kind, number_of};
use super::figures::{Spread, Target, number};
use super::row::{Line, Outcome};
use super::{Pace, say};
use crate::Result;

pub(crate) const PROGRAMS: &[Kind] = &[Kind::Bare, Kind::Unobserved, Kind::Observed];

/// What runs in turn; the first is what the others are compared with. The targets are multiples of its time of a call.
const SIDES: [(Kind, &str, Option<Target>); 4] = [
    (Kind::Bare, "", None),
    (Kind::Bare, "annotated call, the same program in another process", None),
    (
        Kind::Unobserved,
        "annotated call, spans and metrics, no subscriber or recorder",
        Some(Target::AtMost(1.01)),
    ),
    (
        Kind::Observed,
        "annotated call, subscriber and recorder that do nothing",
        Some(Target::AtMost(1.1)),
    ),
];

/// Medians of one side, of each start.
#[derive(Default)]
struct Medians {
    micros: Vec<f64>,
    /// Of the ratios to the first side, batch by batch.
    ratios: Vec<f64>,
}

pub(crate) fn run(pace: &Pace) -> Result<Outcome> {
    let mut sides = SIDES.map(|_| Medians::default());
    for start in 1..=pace.starts {
        let batches = batches(pace)?;
        for (side, micros) in sides.iter_mut().zip(&batches) {
            let none = "no call took any time";
            let ratio = Spread::ratio(micros, &batches[0]).ok_or(none)?;
            let median = Spread::of(micros.iter().copied()).ok_or(none)?.median;
            side.micros.push(median);
            side.ratios.push(ratio.median);
        }
        let last = |side: &Medians| side.ratios.last().copied().map(thousandths);
        let shown: Vec<_> = sides.iter().skip(1).filter_map(last).collect();
        say::note(format_args!(
            "{start}/{}: itself, unobserved, observed: {} ×",
            pace.starts,
            shown.join(" · ")
        ));
    }
    let spread = |medians: &[f64]| Spread::of(medians.iter().copied()).ok_or("no start");
    let mut outcome = Outcome::default();
    let bare = spread(&sides[0].micros)?;
    for ((_, work, target), side) in SIDES.iter().zip(&sides).skip(1) {
        let ratio = spread(&side.ratios)?;
        outcome.lines.push(Line {
            row: "B20",
            work: (*work).to_owned(),
            ours: spread(&side.micros)?.shown(number) + " µs",
            against: Kind::Bare.title().to_owned(),
            theirs: bare.shown(number) + " µs",
            figure: format!("{} ×", ratio.shown(thousandths)),
            measured: ratio.median,
            target: *target,
        });
    }
    outcome.notes.push(format!(
        "B20: medians of {} starts of all programs (least to most), of {} batches in turn each. What a program is of itself says \
         how much of a difference means nothing.",
        pace.starts, pace.batches
    ));
    Ok(outcome)
}

/// Starts all sides, and has them make their batches in turn; microseconds a call.
fn batches(pace: &Pace) -> Result<[Vec<f64>; SIDES.len()]> {
    let mut crews = Vec::new();
    for (kind, ..) in SIDES {
        crews.push(Crew::start(kind, 1, &[])?);
    }
    let mut micros = SIDES.map(|_| Vec::new());
    for round in 0..pace.batches {
        for at in 0..SIDES.len() {
            // Another one begins each time.
            let at = (at + round) % SIDES.len();
            let answer = crews[at].single(Duration::ZERO, Duration::ZERO)?;
            micros[at].push(number_of(&answer, "micros")?);
        }
    }
    crews.into_iter().try_for_each(Crew::end)?;
    Ok(micros)
}

/// A ratio of which one in a hundred matters.
fn thousandths(ratio: f64) -> String {
    format!("{ratio:.3}")
}
