//! Contest between ours and each peer, which measure in turn on the same etcd.

use std::thread;
use std::time::Duration;

use super::figures::{Spread, Target, rate};
use super::row::{Line, Outcome};
use super::server::Server;
use super::side::{Crowd, Side};
use super::{Pace, cluster, note};
use crate::Result;
use crate::kind::Kind;

/// Longer than an engine takes to notice that another member leads.
const FOLLOWED: Duration = Duration::from_secs(20);

/// Work that is the same for all.
pub(crate) struct Contest {
    pub(crate) ours: Kind,
    pub(crate) crowd: Crowd,
    /// True on a cluster with a network, instead of one member on this machine.
    pub(crate) remote: bool,
    /// Peers, each with the least ratio of our rate to theirs.
    pub(crate) against: &'static [(Kind, f64)],
    /// Other peers, without a promised ratio.
    pub(crate) others: &'static [Kind],
}

impl Contest {
    fn work(&self) -> String {
        match self.crowd {
            Crowd { processes: 2.., .. } => format!("{} processes, one name", self.crowd.processes),
            Crowd { tasks: 1, names: 1, .. } => "1 task, one name".to_owned(),
            Crowd { tasks: 1, names, .. } => format!("1 task, {names} names in turn"),
            Crowd { tasks, names: 1, .. } => format!("{tasks} tasks, one name"),
            Crowd { tasks, .. } => format!("{tasks} tasks, a name each"),
        }
    }

    /// Returns the plot in which its rates are drawn.
    fn plot(&self) -> Option<&'static str> {
        match self.crowd {
            _ if self.remote || self.ours != Kind::Ours => None,
            Crowd { processes: 2.., .. } => Some("processes.svg"),
            Crowd { tasks, names, .. } => (tasks == names).then_some("tasks.svg"),
        }
    }

    /// Returns all peers, each with the least ratio of our rate to theirs if one was promised.
    pub(crate) fn peers(&self) -> impl Iterator<Item = (Kind, Option<Target>)> {
        let against = self.against.iter();
        let against = against.map(|(kind, least)| (*kind, Some(Target::AtLeast(*least))));
        against.chain(self.others.iter().map(|kind| (*kind, None)))
    }

    pub(crate) fn run(&self, pace: &Pace) -> Result<Outcome> {
        if !self.remote {
            let server = Server::start()?;
            return self.run_on(&server.endpoint(), |_| Ok(()), pace);
        }
        let cluster = cluster::start()?;
        // Another member leads in each round, the same one for all sides.
        let lead = |round| {
            cluster.lead(round % cluster.members().len())?;
            thread::sleep(FOLLOWED);
            Ok(())
        };
        self.run_on(&cluster.endpoints().join(","), lead, pace)
    }

    fn run_on(
        &self,
        endpoints: &str,
        prepare: impl Fn(usize) -> Result<()>,
        pace: &Pace,
    ) -> Result<Outcome> {
        let against: Vec<_> = self.peers().filter(|(kind, _)| pace.meets(*kind)).collect();
        let mut sides = Vec::new();
        for kind in [self.ours].into_iter().chain(against.iter().map(|(kind, _)| *kind)) {
            sides.push(Side::start(kind, "calls", self.crowd, endpoints, &[], pace)?);
        }
        for pair in 1..=pace.pairs {
            prepare(pair)?;
            // Another side begins each time, so that no side always measures after the same one.
            let count = sides.len();
            for at in 0..count {
                sides[(at + pair - 1) % count].round()?;
            }
            let shown =
                sides.iter().map(|side| format!("{} {}", side.kind.title(), rate(side.last())));
            let shown: Vec<_> = shown.collect();
            note(format_args!("{pair}/{}: {}", pace.pairs, shown.join(" · ")));
        }
        let mut outcome = Outcome::default();
        for (peer, (_, target)) in sides.iter().skip(1).zip(&against) {
            let (ours, against) = (&sides[0].rates, peer.kind.title());
            let line = Line::pairs(self.work(), ours, against, &peer.rates, rate, *target);
            outcome.lines.push(line.map_err(|error| format!("{against}: {error}"))?);
        }
        let mut changes = Vec::new();
        for side in sides {
            let size = (self.crowd.tasks * self.crowd.processes) as f64;
            let median = Spread::of(&side.rates)?.median;
            outcome.points.extend(self.plot().map(|plot| (plot, side.kind, (size, median))));
            let share = side.changes / side.total.max(1.0) * 100.0;
            changes.push(format!("{} {share:.0} %", side.kind.title()));
            outcome.latencies.push((self.work(), side.kind, side.latency));
            side.crew.end()?;
        }
        if self.crowd.processes > 1 {
            outcome.notes.push(format!(
                "{}: share of calls that came after one of another process, not of their own: {}.",
                self.work(),
                changes.join(", ")
            ));
        }
        Ok(outcome)
    }
}
