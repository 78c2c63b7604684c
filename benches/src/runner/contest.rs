//! Ours and each peer in turn, against the same etcd.

use std::time::Duration;

use super::crew::{Crew, Done, Kind, Witness};
use super::figures::{Spread, Target, Verdict, number, rate};
use super::row::{Line, Outcome, Point};
use super::server::Server;
use super::{Pace, say};
use crate::Result;
use crate::latency::Latency;

/// The same work for all.
pub(crate) struct Contest {
    pub(crate) row: &'static str,
    pub(crate) work: &'static str,
    pub(crate) ours: Kind,
    pub(crate) processes: usize,
    pub(crate) tasks: usize,
    pub(crate) names: usize,
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

/// A peer's rounds.
struct Side {
    kind: Kind,
    crew: Crew,
    witness: Option<Witness>,
    rates: Vec<f64>,
    latency: Latency,
    total: u64,
    changes: u64,
}

impl Contest {
    pub(crate) fn run(&self, pace: &Pace) -> Result<Outcome> {
        let server = Server::start()?;
        let against: Vec<_> = self
            .against
            .iter()
            .filter(|(k, _)| pace.meets(*k))
            .collect();
        let kinds = against.iter().map(|(kind, _)| *kind);
        let window = match self.processes {
            ..64 => pace.window,
            // It takes long until every process has been served.
            _ => pace.window * 2,
        };
        let mut sides = Vec::new();
        for kind in std::iter::once(self.ours).chain(kinds) {
            sides.push(self.side(kind, &server, window)?);
        }
        // Before it is counted all have connected, and the first locks and watches are there.
        let lead = Duration::from_millis(300 + 8 * self.processes as u64);
        for pair in 1..=pace.pairs {
            // Another one begins each time, so that no side always measures on what the same one has left.
            let count = sides.len();
            for at in 0..count {
                if let Some(side) = sides.get_mut((at + pair - 1) % count) {
                    side.round(lead, window)?;
                }
            }
            let shown: Vec<_> = sides
                .iter()
                .map(|side| {
                    let last = side.rates.last().copied().unwrap_or_default();
                    format!("{} {}", side.kind.title(), rate(last))
                })
                .collect();
            say::note(format_args!("{pair}/{}: {}", pace.pairs, shown.join(" · ")));
        }
        let outcome = self.outcome(&sides, &against)?;
        for side in sides {
            side.end()?;
        }
        Ok(outcome)
    }

    fn side(&self, kind: Kind, server: &Server, window: Duration) -> Result<Side> {
        // In one process a counter in memory will do.
        let witness = match self.processes {
            1 => None,
            _ => Some(Witness::new(self.names)?),
        };
        let mut args = Vec::new();
        let mut option = |name: &str, value: String| args.extend([format!("--{name}"), value]);
        option("work", "calls".to_owned());
        option("endpoint", server.endpoint());
        option("tasks", self.tasks.to_string());
        option("names", self.names.to_string());
        option("seconds", window.as_secs_f64().to_string());
        if let Some(witness) = &witness {
            option("witness", witness.path().display().to_string());
        }
        Ok(Side {
            kind,
            crew: Crew::start(kind, self.processes, &args)?,
            witness,
            rates: Vec::new(),
            latency: Latency::default(),
            total: 0,
            changes: 0,
        })
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
            let (tasks, processes) = (self.tasks as f64, self.processes as f64);
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
        if self.processes > 1 {
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

impl Side {
    fn round(&mut self, lead: Duration, window: Duration) -> Result<()> {
        let done = Done::of(&self.crew.round(lead, window)?)?;
        self.total += done.total;
        self.changes += done.changes;
        let seen = match &self.witness {
            None => done.witnessed,
            Some(witness) => witness.seen()?,
        };
        let all = match &self.witness {
            None => done.total,
            Some(_) => self.total,
        };
        if seen != all {
            return Err(format!(
                "{} does not exclude: of {all} calls the witness has counted {seen}",
                self.kind.title()
            ));
        }
        self.rates.push(done.rate);
        self.latency.add(&done.latency);
        Ok(())
    }

    fn shown(&self) -> Result<String> {
        let spread = Spread::of(self.rates.iter().copied()).ok_or("there was no round")?;
        Ok(spread.shown(number) + "/s")
    }

    fn end(self) -> Result<()> {
        self.crew.end()
    }
}
