//! Rows of the benches, in the order in which they run.

use super::contest::Contest;
use super::row::Outcome;
use super::side::Crowd;
use super::{Pace, alone, embedded, endurance, fences, herd, idle, kills, nested, telemetry};
use crate::Result;
use crate::kind::Kind::{self, Go, Guarded, Plain, Python, Service, Single, Watching};

pub(crate) struct Row {
    pub(crate) id: &'static str,
    measure: Measure,
}

enum Measure {
    Contests(&'static [Contest]),
    /// Row with its own function, and workers of these kinds.
    Own(&'static [Kind], Run),
}

impl Row {
    /// Returns the peers that take part.
    pub(crate) fn peers(&self) -> Vec<Kind> {
        match self.measure {
            Measure::Contests(contests) => {
                let peers = contests.iter().flat_map(Contest::peers);
                peers.map(|(kind, _)| kind).collect()
            }
            Measure::Own(kinds, _) => kinds.to_vec(),
        }
    }

    pub(crate) fn run(&self, pace: &Pace) -> Result<Outcome> {
        let contests = match self.measure {
            Measure::Contests(contests) => contests,
            Measure::Own(_, run) => return run(pace),
        };
        let mut all = Outcome::default();
        for contest in contests {
            all.add(contest.run(pace)?);
        }
        Ok(all)
    }
}

type Run = fn(&Pace) -> Result<Outcome>;

const fn own(id: &'static str, kinds: &'static [Kind], run: Run) -> Row {
    Row { id, measure: Measure::Own(kinds, run) }
}

const fn contests(id: &'static str, contests: &'static [Contest]) -> Row {
    Row { id, measure: Measure::Contests(contests) }
}

/// Returns a contest with this number of processes, of tasks in each, and of names in total.
const fn contest(
    [processes, tasks, names]: [usize; 3],
    against: &'static [(Kind, f64)],
    others: &'static [Kind],
) -> Contest {
    let crowd = Crowd { processes, tasks, names };
    Contest { ours: Kind::Ours, crowd, remote: false, against, others }
}

/// Returns a contest that does not wait until its locks are released.
const fn released(contest: Contest) -> Contest {
    Contest { ours: Kind::Background, ..contest }
}

/// Returns the same contest on a cluster with a network.
const fn remote(contest: Contest) -> Contest {
    Contest { remote: true, ..contest }
}

/// Peers by hand: our transactions on a runtime of one thread, and what one writes with etcd-client.
const BY_HAND: &[Kind] = &[Single, Plain];
const HANDOVER: &[Kind] = &[Go, Service, Python];

/// Rows and peers of a short run, which can be packed for another machine.
pub(crate) const SHORT: (&[&str], &[Kind]) =
    (&["B1", "B2", "B3", "B4", "B5", "B6", "B22"], &[Go, Guarded, Single, Watching]);

pub(crate) const ROWS: &[Row] = &[
    contests(
        "B1",
        &[contest([1, 1, 1], &[(Go, 1.0), (Guarded, 0.95)], &[Single, Plain, Service, Python])],
    ),
    contests(
        "B1'",
        &[
            // The next call is for another name, so it must go to etcd.
            released(contest([1, 1, 64], &[(Go, 1.6)], &[])),
            // The next call takes over, inside the process, the lock that the last one is about to release.
            released(contest([1, 1, 1], &[], &[Go])),
        ],
    ),
    contests(
        "B2",
        &[
            contest([1, 4, 4], &[(Go, 1.0), (Guarded, 0.95)], BY_HAND),
            contest([1, 16, 16], &[(Go, 1.0), (Guarded, 0.95)], BY_HAND),
            contest([1, 64, 64], &[(Go, 1.2)], &[Guarded]),
            contest([1, 256, 256], &[(Go, 1.5)], &[Guarded, Plain, Service, Python]),
            contest([1, 1_024, 1_024], &[(Go, 2.0)], &[Guarded]),
        ],
    ),
    contests("B3", &[contest([2, 1, 1], &[(Watching, 0.95)], HANDOVER)]),
    contests("B4", &[contest([16, 1, 1], &[(Watching, 0.95)], HANDOVER)]),
    contests(
        "B5",
        &[contest([64, 1, 1], &[(Go, 1.5)], &[Watching]), contest([256, 1, 1], &[(Go, 1.5)], &[])],
    ),
    contests("B6", &[contest([1, 64, 1], &[(Go, 200.0)], &[Service])]),
    own("B7", &[], idle::run),
    own("B8", &[], alone::memory),
    own("B9", &[], kills::run),
    own("B13", &[], embedded::run),
    own("B14", &[], nested::run),
    own("B15", &[], alone::tries),
    own("B16", &[], alone::shutdowns),
    own("B17", &[], alone::retention),
    contests(
        "B18",
        &[
            remote(contest([1, 1, 1], &[(Go, 1.0)], &[Guarded])),
            remote(contest([1, 4, 4], &[(Go, 1.0)], &[Guarded])),
            remote(contest([1, 16, 16], &[(Go, 1.0)], &[Guarded])),
            remote(contest([1, 64, 64], &[(Go, 1.0)], &[Guarded])),
            remote(contest([1, 256, 256], &[(Go, 2.0)], &[Guarded])),
            remote(contest([2, 1, 1], &[(Go, 1.0)], &[Watching])),
            remote(contest([16, 1, 1], &[(Go, 1.0)], &[Watching])),
        ],
    ),
    own("B19", herd::PEERS, herd::run),
    own("B20", &[Kind::Bare, Kind::Unobserved, Kind::Observed], telemetry::run),
    own("B21", &[Kind::Fenced], fences::run),
    own("B22", &[Guarded], alone::processor),
    own("B23", &[], alone::users),
    // The longest row is last.
    own("B10", &[], endurance::run),
];
