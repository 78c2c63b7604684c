//! The rows, in the order in which they run.

use super::contest::{Contest, Plot};
use super::crew::Kind::{self, Go, Guarded, Plain, Python, Raw, Service, Stored, Watching};
use super::crowd::Crowd;
use super::row::Outcome;
use super::site::Site;
use super::{
    Pace, endurance, fences, herd, idle, inprocess, kills, memory, nested, retention, shutdowns,
    telemetry, tries,
};
use crate::Result;

pub(crate) struct Row {
    pub(crate) id: &'static str,
    /// What it asks, for people.
    pub(crate) title: &'static str,
    measure: Measure,
}

enum Measure {
    Contests(&'static [Contest]),
    /// By a function of its own, with workers of these kinds.
    Own(&'static [Kind], fn(&Pace) -> Result<Outcome>),
}

impl Row {
    /// Who takes part.
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
            all.add(contest.run(self.id, pace)?);
        }
        Ok(all)
    }
}

/// Measures by a function of its own, without peers.
const fn own(id: &'static str, title: &'static str, run: fn(&Pace) -> Result<Outcome>) -> Row {
    Row { id, title, measure: Measure::Own(&[], run) }
}

/// So many processes of so many tasks each, with so many names in all.
const fn contest(
    work: &'static str,
    [processes, tasks, names]: [usize; 3],
    against: &'static [(Kind, f64)],
    others: &'static [Kind],
) -> Contest {
    Contest {
        work,
        ours: Kind::Ours,
        crowd: Crowd { processes, tasks, names },
        site: Site::Machine,
        against,
        others,
        plot: Plot::None,
    }
}

/// Tasks of one process, each with a name of its own.
const fn apart(
    work: &'static str,
    tasks: usize,
    against: &'static [(Kind, f64)],
    others: &'static [Kind],
) -> Contest {
    Contest { plot: Plot::Tasks, ..contest(work, [1, tasks, tasks], against, others) }
}

/// Processes of one task each, all with the same name.
const fn together(
    work: &'static str,
    processes: usize,
    against: &'static [(Kind, f64)],
    others: &'static [Kind],
) -> Contest {
    Contest { plot: Plot::Processes, ..contest(work, [processes, 1, 1], against, others) }
}

/// One task that does not wait until its locks are given back.
const fn released(
    work: &'static str,
    names: usize,
    against: &'static [(Kind, f64)],
    others: &'static [Kind],
) -> Contest {
    Contest { ours: Kind::Background, ..contest(work, [1, 1, names], against, others) }
}

/// The same on a cluster with a network.
const fn remote(contest: Contest) -> Contest {
    Contest { site: Site::Network, plot: Plot::None, ..contest }
}

/// Peers by hand: with etcd-client, and with our transactions.
const BY_HAND: &[Kind] = &[Plain, Guarded];

pub(crate) const ROWS: &[Row] = &[
    Row {
        id: "B1",
        title: "one task, one name, release confirmed",
        measure: Measure::Contests(&[apart(
            "1 task",
            1,
            &[(Go, 0.95), (Guarded, 0.95)],
            &[Plain, Service, Python],
        )]),
    },
    Row {
        id: "B1'",
        title: "one task, released in the background",
        measure: Measure::Contests(&[
            // The next call is for another name, so that it has to go to etcd.
            released("1 task, 64 names in turn", 64, &[(Go, 1.6)], &[]),
            // It takes over what the last one is about to give back, inside the process.
            released("1 task, one name", 1, &[], &[Go]),
        ]),
    },
    Row {
        id: "B2",
        title: "tasks of one process, each with a name of its own",
        measure: Measure::Contests(&[
            apart(
                "256 tasks, 256 names",
                256,
                &[(Go, 8.0)],
                &[Guarded, Plain, Service, Python, Raw],
            ),
            apart("4 tasks", 4, &[(Go, 1.0)], &[Guarded]),
            apart("16 tasks", 16, &[(Go, 1.5)], &[Guarded]),
            apart("64 tasks", 64, &[(Go, 4.0)], &[Guarded, Raw]),
        ]),
    },
    Row {
        id: "B2'",
        title: "the same, many of them, and what etcd can do at all",
        measure: Measure::Contests(&[apart(
            "1,024 tasks, 1,024 names",
            1_024,
            &[(Go, 5.0), (Guarded, 0.9), (Raw, 0.7)],
            &[Stored],
        )]),
    },
    Row {
        id: "B3",
        title: "2 processes, one name",
        measure: Measure::Contests(&[together(
            "2 processes",
            2,
            &[(Go, 20.0), (Watching, 0.95)],
            &[Service, Python],
        )]),
    },
    Row {
        id: "B4",
        title: "16 processes, one name",
        measure: Measure::Contests(&[together(
            "16 processes",
            16,
            &[(Go, 8.0), (Watching, 0.95)],
            &[Service, Python],
        )]),
    },
    Row {
        id: "B5",
        title: "64 and 256 processes, one name",
        measure: Measure::Contests(&[
            together("64 processes", 64, &[(Go, 1.5)], &[Watching]),
            together("256 processes", 256, &[(Go, 1.5)], &[]),
        ]),
    },
    Row {
        id: "B6",
        title: "64 tasks of one process, one name",
        measure: Measure::Contests(&[contest(
            "64 tasks, one name",
            [1, 64, 1],
            &[(Go, 100.0)],
            &[Service],
        )]),
    },
    own("B7", "requests and processor time while locks are held", idle::run),
    own("B8", "memory", memory::run),
    own("B9", "the holder is killed", kills::run),
    own("B13", "calls on the embedded etcd, in this process", inprocess::run),
    own("B14", "tasks that hold a lock each and wait for one hot name", nested::run),
    own("B15", "single tries, thousands at once", tries::run),
    own("B16", "shutdown with very many locks held", shutdowns::run),
    own("B17", "`at_least` on very many names", retention::run),
    Row {
        id: "B18",
        title: "a cluster of three, half a millisecond each way",
        measure: Measure::Contests(&[
            remote(apart("1 task", 1, &[(Go, 1.0)], BY_HAND)),
            remote(apart("4 tasks", 4, &[(Go, 1.2)], BY_HAND)),
            remote(apart("16 tasks", 16, &[(Go, 2.0)], BY_HAND)),
            remote(apart("64 tasks", 64, &[(Go, 6.0)], BY_HAND)),
            remote(apart("256 tasks", 256, &[(Go, 12.0)], BY_HAND)),
            remote(together("2 processes", 2, &[(Go, 10.0)], &[Watching])),
            remote(together("16 processes", 16, &[(Go, 4.0)], &[Watching])),
        ]),
    },
    Row {
        id: "B19",
        title: "what a release sets off among processes that wait",
        measure: Measure::Own(herd::PEERS, herd::run),
    },
    Row {
        id: "B20",
        title: "spans and metrics of a call on the embedded etcd",
        measure: Measure::Own(telemetry::PROGRAMS, telemetry::run),
    },
    Row {
        id: "B21",
        title: "a fenced transaction",
        measure: Measure::Own(fences::PROGRAMS, fences::run),
    },
    // The longest comes last.
    own("B10", "throughput on hot names over time", endurance::run),
];
