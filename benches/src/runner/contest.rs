//! Ours and each peer in turn, against the same etcd.

use super::crew::Kind;
use super::crowd::Crowd;
use super::figures::{Spread, Target, number, rate};
use super::row::{Line, Outcome, Point};
use super::side::Side;
use super::site::Site;
use super::{Pace, say};
use crate::Result;

/// The same work for all.
pub(crate) struct Contest {
    pub(crate) work: &'static str,
    pub(crate) ours: Kind,
    pub(crate) crowd: Crowd,
    pub(crate) site: Site,
    /// With what ours must be of theirs at least.
    pub(crate) against: &'static [(Kind, f64)],
    /// Others, against whom nothing was promised.
    pub(crate) others: &'static [Kind],
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
    /// All that ours are measured against, and what ours must be of theirs at least, if anything was promised.
    pub(crate) fn peers(&self) -> impl Iterator<Item = (Kind, Option<f64>)> {
        let against = self.against.iter().copied();
        let against = against.map(|(kind, least)| (kind, Some(least)));
        against.chain(self.others.iter().map(|kind| (*kind, None)))
    }

    pub(crate) fn run(&self, row: &'static str, pace: &Pace) -> Result<Outcome> {
        let etcd = self.site.start()?;
        let peers = self.peers().filter(|(kind, _)| pace.meets(*kind));
        let against: Vec<_> = peers.collect();
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
        let mut outcome = self.outcome(row, &sides, &against)?;
        for side in sides {
            side.end()?;
        }
        let note = etcd.note()?;
        let noted = note.map(|note| format!("{row}, {}: {note}.", self.work));
        outcome.notes.extend(noted);
        Ok(outcome)
    }

    fn outcome(
        &self,
        row: &'static str,
        sides: &[Side],
        against: &[(Kind, Option<f64>)],
    ) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let [ours, peers @ ..] = sides else {
            return Err("no peer has taken part".to_owned());
        };
        for (peer, (_, least)) in peers.iter().zip(against) {
            let no_figure = || format!("{row}: {} has done nothing", peer.kind.title());
            let ratio = Spread::ratio(&ours.rates, &peer.rates).ok_or_else(no_figure)?;
            outcome.lines.push(Line {
                row,
                work: self.work.to_owned(),
                ours: ours.shown()?,
                against: peer.kind.title().to_owned(),
                theirs: peer.shown()?,
                figure: format!("{} ×", ratio.shown(number)),
                measured: ratio.median,
                target: least.map(Target::AtLeast),
            });
        }
        for side in sides {
            let median = Spread::of(side.rates.iter().copied()).map_or(0.0, |s| s.median);
            let (tasks, processes) = (self.crowd.tasks as f64, self.crowd.processes as f64);
            match self.plot {
                Plot::Tasks => outcome.points.push(Point::Tasks(side.kind, tasks, median)),
                Plot::Processes => {
                    outcome.points.push(Point::Processes(side.kind, processes, median))
                }
                Plot::None => {}
            }
            outcome.points.push(Point::Latency {
                row,
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
                "{row}, {}: so many calls came after one of another process, all others after one of their own: {}.",
                self.work,
                changes.collect::<Vec<_>>().join(", ")
            ));
        }
        Ok(outcome)
    }
}
