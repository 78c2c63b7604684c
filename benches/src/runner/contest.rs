//! Ours and each peer in turn, against the same etcd.

use super::crew::Kind;
use super::crowd::Crowd;
use super::figures::{Spread, Target, Verdict, number, rate};
use super::row::{Line, Outcome, Point};
use super::side::Side;
use super::site::Site;
use super::{Pace, say};
use crate::Result;

/// The same work for all.
pub(crate) struct Contest {
    pub(crate) row: &'static str,
    pub(crate) work: &'static str,
    pub(crate) ours: Kind,
    pub(crate) crowd: Crowd,
    pub(crate) site: Site,
    /// With what ours must be of theirs at least, if anything was promised.
    pub(crate) against: &'static [(Kind, Option<f64>)],
    pub(crate) plot: Plot,
}

/// Where its figures go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plot {
    Tasks,
    Processes,
    None,
}

impl Contest {
    pub(crate) fn run(&self, pace: &Pace) -> Result<Outcome> {
        let etcd = self.site.start()?;
        let against: Vec<_> = self
            .against
            .iter()
            .filter(|(k, _)| pace.meets(*k))
            .collect();
        let kinds = against.iter().map(|(kind, _)| *kind);
        let mut sides = Vec::new();
        for kind in std::iter::once(self.ours).chain(kinds) {
            sides.push(Side::start(kind, self.crowd, &etcd.endpoints(), pace)?);
        }
        for pair in 1..=pace.pairs {
            etcd.prepare(pair)?;
            // Another one begins each time, so that no side always measures on what the same one has left.
            let count = sides.len();
            for at in 0..count {
                if let Some(side) = sides.get_mut((at + pair - 1) % count) {
                    side.round()?;
                }
            }
            let shown: Vec<_> = sides
                .iter()
                .map(|side| format!("{} {}", side.kind.title(), rate(side.last())))
                .collect();
            say::note(format_args!("{pair}/{}: {}", pace.pairs, shown.join(" · ")));
        }
        let mut outcome = self.outcome(&sides, &against)?;
        for side in sides {
            side.end()?;
        }
        let note = etcd.note()?;
        let noted = note.map(|note| format!("{}, {}: {note}.", self.row, self.work));
        outcome.notes.extend(noted);
        Ok(outcome)
    }

    fn outcome(&self, sides: &[Side], against: &[&(Kind, Option<f64>)]) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let [ours, peers @ ..] = sides else {
            return Err("no peer has taken part".to_owned());
        };
        for (peer, (_, least)) in peers.iter().zip(against) {
            let no_figure = || format!("{}: {} has done nothing", self.row, peer.kind.title());
            let ratio = Spread::ratio(&ours.rates, &peer.rates).ok_or_else(no_figure)?;
            let target = least.map(Target::AtLeast);
            outcome.lines.push(Line {
                row: self.row,
                work: self.work.to_owned(),
                ours: ours.shown()?,
                against: peer.kind.title().to_owned(),
                theirs: peer.shown()?,
                figure: format!("{} ×", ratio.shown(number)),
                target,
                verdict: target.map_or(Verdict::Untargeted, |target| target.verdict(ratio.median)),
            });
        }
        for side in sides {
            let median = Spread::of(side.rates.iter().copied()).map_or(0.0, |s| s.median);
            let (tasks, processes) = (self.crowd.tasks as f64, self.crowd.processes as f64);
            match self.plot {
                Plot::Tasks => outcome.points.push(Point::Tasks(side.kind, tasks, median)),
                Plot::Processes => outcome
                    .points
                    .push(Point::Processes(side.kind, processes, median)),
                Plot::None => {}
            }
            outcome.points.push(Point::Latency {
                row: self.row,
                work: self.work,
                kind: side.kind,
                latency: side.latency.clone(),
            });
        }
        if self.crowd.processes > 1 {
            let changes = sides.iter().map(|side| {
                let share = side.changes as f64 / side.total.max(1) as f64 * 100.0;
                format!("{} {share:.0} %", side.kind.title())
            });
            outcome.notes.push(format!(
                "{}, {}: so many calls came after one of another process, all others after one of their own: {}.",
                self.row,
                self.work,
                changes.collect::<Vec<_>>().join(", ")
            ));
        }
        Ok(outcome)
    }
}
