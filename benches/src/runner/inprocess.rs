//! B13: an annotated call on the embedded etcd, compared with its floors.

use super::figures::{Spread, Target, number};
use super::row::{Line, Outcome};
use super::{Pace, say};
use crate::Result;
use crate::embedded::{self, Measured};

pub(crate) fn run(_pace: &Pace) -> Result<Outcome> {
    let rows = embedded::measure().map_err(|error| error.to_string())?;
    let mut outcome = Outcome::default();
    for row in &rows {
        let spread = Spread::of(row.micros.iter().copied()).ok_or("B13 has no batches")?;
        say::note(format_args!("{}: {} µs", row.name, spread.shown(number)));
        let (against, theirs) = match row.floor.and_then(|floor| more(row, &rows, floor)) {
            Some(more) => ("more than the two transactions".to_owned(), more.shown(number) + " µs"),
            None => Default::default(),
        };
        outcome.lines.push(Line {
            row: "B13",
            work: row.name.to_owned(),
            ours: spread.shown(number) + " µs",
            against,
            theirs,
            figure: number(spread.median) + " µs",
            measured: spread.median,
            target: row.target.map(Target::AtMost),
        });
    }
    outcome.notes.push(
        "B13: a call is two transactions, on the caller's own thread; the rest is ours. Were it asked for and released on \
         another thread, there would be two hops more."
            .to_owned(),
    );
    Ok(outcome)
}

/// What a call takes beyond its floor, batch by batch.
fn more(call: &Measured, rows: &[Measured], floor: &str) -> Option<Spread> {
    let floor = rows.iter().find(|row| row.name == floor)?;
    let pairs = call.micros.iter().zip(&floor.micros);
    Spread::of(pairs.map(|(call, floor)| call - floor))
}
