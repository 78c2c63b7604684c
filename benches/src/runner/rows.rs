//! The rows, in the order in which they run.

use super::contest::{Contest, Plot};
use super::crew::Kind;
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
    pub(crate) parts: &'static [Part],
}

pub(crate) enum Part {
    Contest(Contest),
    /// Measures by a function of its own, with workers of these kinds.
    Own(&'static [Kind], fn(&Pace) -> Result<Outcome>),
}

impl Row {
    /// Who takes part.
    pub(crate) fn peers(&self) -> Vec<Kind> {
        let peers = self.parts.iter().flat_map(|part| match part {
            Part::Contest(contest) => contest.against.iter().map(|(kind, _)| *kind).collect(),
            Part::Own(kinds, _) => kinds.to_vec(),
        });
        peers.collect()
    }

    pub(crate) fn run(&self, pace: &Pace) -> Result<Outcome> {
        let mut all = Outcome::default();
        for part in self.parts {
            all.add(match part {
                Part::Contest(contest) => contest.run(pace)?,
                Part::Own(_, run) => run(pace)?,
            });
        }
        Ok(all)
    }
}

/// Tasks of one process, each with a name of its own.
const fn apart(
    row: &'static str,
    work: &'static str,
    tasks: usize,
    against: &'static [(Kind, Option<f64>)],
) -> Part {
    Part::Contest(Contest {
        row,
        work,
        ours: Kind::Ours,
        crowd: Crowd {
            processes: 1,
            tasks,
            names: tasks,
        },
        site: Site::Machine,
        against,
        plot: Plot::Tasks,
    })
}

/// Processes of one task each, all with the same name.
const fn together(
    row: &'static str,
    work: &'static str,
    processes: usize,
    against: &'static [(Kind, Option<f64>)],
) -> Part {
    Part::Contest(Contest {
        row,
        work,
        ours: Kind::Ours,
        crowd: Crowd {
            processes,
            tasks: 1,
            names: 1,
        },
        site: Site::Machine,
        against,
        plot: Plot::Processes,
    })
}

/// One task that does not wait until its locks are given back.
const fn released(
    work: &'static str,
    names: usize,
    against: &'static [(Kind, Option<f64>)],
) -> Part {
    Part::Contest(Contest {
        row: "B1'",
        work,
        ours: Kind::Background,
        crowd: Crowd {
            processes: 1,
            tasks: 1,
            names,
        },
        site: Site::Machine,
        against,
        plot: Plot::None,
    })
}

/// The same on a cluster with a network.
const fn remote(part: Part) -> Part {
    match part {
        Part::Contest(contest) => Part::Contest(Contest {
            site: Site::Network,
            plot: Plot::None,
            ..contest
        }),
        other => other,
    }
}

pub(crate) const ROWS: &[Row] = &[
    Row {
        id: "B1",
        title: "one task, one name, release confirmed",
        parts: &[apart(
            "B1",
            "1 task",
            1,
            &[
                (Kind::Go, Some(0.95)),
                (Kind::Plain, None),
                (Kind::Guarded, None),
                (Kind::Service, None),
                (Kind::Python, None),
            ],
        )],
    },
    Row {
        id: "B1'",
        title: "one task, released in the background",
        parts: &[
            // The next call is for another name, so that it has to go to etcd.
            released("1 task, 64 names in turn", 64, &[(Kind::Go, Some(1.6))]),
            // It takes over what the last one is about to give back, inside the process.
            released("1 task, one name", 1, &[(Kind::Go, None)]),
        ],
    },
    Row {
        id: "B2",
        title: "tasks of one process, each with a name of its own",
        parts: &[
            apart(
                "B2",
                "256 tasks, 256 names",
                256,
                &[
                    (Kind::Go, Some(4.0)),
                    (Kind::Plain, None),
                    (Kind::Service, None),
                    (Kind::Python, None),
                    (Kind::Raw, None),
                ],
            ),
            apart("B2", "4 tasks", 4, &[(Kind::Go, None)]),
            apart("B2", "16 tasks", 16, &[(Kind::Go, None)]),
            apart("B2", "64 tasks", 64, &[(Kind::Go, None), (Kind::Raw, None)]),
        ],
    },
    Row {
        id: "B2'",
        title: "the same, many of them, and what etcd can do at all",
        parts: &[apart(
            "B2'",
            "1,024 tasks, 1,024 names",
            1_024,
            &[
                (Kind::Go, Some(5.0)),
                (Kind::Raw, Some(0.7)),
                (Kind::Stored, None),
                (Kind::Guarded, None),
            ],
        )],
    },
    Row {
        id: "B3",
        title: "2 processes, one name",
        parts: &[together(
            "B3",
            "2 processes",
            2,
            &[
                (Kind::Go, Some(20.0)),
                (Kind::Watching, None),
                (Kind::Service, None),
                (Kind::Python, None),
            ],
        )],
    },
    Row {
        id: "B4",
        title: "16 processes, one name",
        parts: &[together(
            "B4",
            "16 processes",
            16,
            &[
                (Kind::Go, Some(8.0)),
                (Kind::Watching, None),
                (Kind::Service, None),
                (Kind::Python, None),
            ],
        )],
    },
    Row {
        id: "B5",
        title: "64 and 256 processes, one name",
        parts: &[
            together(
                "B5",
                "64 processes",
                64,
                &[(Kind::Go, Some(1.5)), (Kind::Watching, None)],
            ),
            together("B5", "256 processes", 256, &[(Kind::Go, Some(1.5))]),
        ],
    },
    Row {
        id: "B6",
        title: "64 tasks of one process, one name",
        parts: &[Part::Contest(Contest {
            row: "B6",
            work: "64 tasks, one name",
            ours: Kind::Ours,
            crowd: Crowd {
                processes: 1,
                tasks: 64,
                names: 1,
            },
            site: Site::Machine,
            against: &[(Kind::Go, Some(100.0)), (Kind::Service, None)],
            plot: Plot::None,
        })],
    },
    Row {
        id: "B7",
        title: "requests and processor time while locks are held",
        parts: &[Part::Own(&[], idle::run)],
    },
    Row {
        id: "B8",
        title: "memory",
        parts: &[
            Part::Own(&[], memory::distinct),
            Part::Own(&[], memory::waiters),
        ],
    },
    Row {
        id: "B9",
        title: "the holder is killed",
        parts: &[Part::Own(&[], kills::run)],
    },
    Row {
        id: "B13",
        title: "calls on the embedded etcd, in this process",
        parts: &[Part::Own(&[], inprocess::run)],
    },
    Row {
        id: "B14",
        title: "tasks that hold a lock each and wait for one hot name",
        parts: &[Part::Own(&[], nested::run)],
    },
    Row {
        id: "B15",
        title: "single tries, thousands at once",
        parts: &[Part::Own(&[], tries::run)],
    },
    Row {
        id: "B16",
        title: "shutdown with very many locks held",
        parts: &[Part::Own(&[], shutdowns::run)],
    },
    Row {
        id: "B17",
        title: "`at_least` on very many names",
        parts: &[Part::Own(&[], retention::run)],
    },
    Row {
        id: "B18",
        title: "a cluster of three, half a millisecond each way",
        parts: &[
            remote(apart(
                "B18",
                "1 task",
                1,
                &[
                    (Kind::Go, Some(1.0)),
                    (Kind::Plain, None),
                    (Kind::Guarded, None),
                ],
            )),
            remote(apart(
                "B18",
                "4 tasks",
                4,
                &[
                    (Kind::Go, Some(1.2)),
                    (Kind::Plain, None),
                    (Kind::Guarded, None),
                ],
            )),
            remote(apart(
                "B18",
                "16 tasks",
                16,
                &[
                    (Kind::Go, Some(2.0)),
                    (Kind::Plain, None),
                    (Kind::Guarded, None),
                ],
            )),
            remote(apart(
                "B18",
                "64 tasks",
                64,
                &[
                    (Kind::Go, Some(6.0)),
                    (Kind::Plain, None),
                    (Kind::Guarded, None),
                ],
            )),
            remote(apart(
                "B18",
                "256 tasks",
                256,
                &[
                    (Kind::Go, Some(12.0)),
                    (Kind::Plain, None),
                    (Kind::Guarded, None),
                ],
            )),
            remote(together(
                "B18",
                "2 processes",
                2,
                &[(Kind::Go, Some(10.0)), (Kind::Watching, None)],
            )),
            remote(together(
                "B18",
                "16 processes",
                16,
                &[(Kind::Go, Some(4.0)), (Kind::Watching, None)],
            )),
        ],
    },
    Row {
        id: "B19",
        title: "what a release sets off among processes that wait",
        parts: &[Part::Own(herd::PEERS, herd::run)],
    },
    Row {
        id: "B20",
        title: "spans and metrics of a call on the embedded etcd",
        parts: &[Part::Own(telemetry::PROGRAMS, telemetry::run)],
    },
    Row {
        id: "B21",
        title: "a fenced transaction",
        parts: &[Part::Own(&[], fences::run)],
    },
    // The longest comes last.
    Row {
        id: "B10",
        title: "throughput on hot names over time",
        parts: &[Part::Own(&[], endurance::run)],
    },
];
