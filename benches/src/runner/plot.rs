//! Which plots there are, and what is on them.

use std::collections::BTreeMap;

use super::crew::Kind;
use super::figures::{number, time};
use super::row::Point;

mod chart;

use chart::{Axis, Chart, Scale, Series};

/// A plot as a file.
pub(crate) struct Drawn {
    pub(crate) file: &'static str,
    pub(crate) title: &'static str,
    pub(crate) svg: String,
}

/// All for which there are points.
pub(crate) fn of(points: &[Point]) -> Vec<Drawn> {
    let (mut tasks, mut processes) = (Lines::default(), Lines::default());
    let mut over_time = Vec::new();
    for point in points {
        match point {
            Point::Tasks(kind, tasks_, rate) => tasks.add(*kind, *tasks_, *rate),
            Point::Processes(kind, count, rate) => processes.add(*kind, *count, *rate),
            Point::Time(seconds, rate) => over_time.push((*seconds, *rate)),
            Point::Latency { .. } => {}
        }
    }
    let mut drawn = vec![
        Drawn {
            file: "tasks.svg",
            title: "Locks a second over tasks, each with a name of its own",
            svg: String::new(),
        }
        .with(
            Axis::new("tasks of one process", Scale::Log(2.0), number),
            Axis::new(
                "locks taken and released a second",
                Scale::Log(10.0),
                number,
            ),
            tasks.series(),
        ),
        Drawn {
            file: "processes.svg",
            title: "Hand-overs a second of one name over processes",
            svg: String::new(),
        }
        .with(
            Axis::new(
                "processes that contend for one name",
                Scale::Log(2.0),
                number,
            ),
            Axis::new("hand-overs a second", Scale::Log(10.0), number),
            processes.series(),
        ),
        Drawn {
            file: "time.svg",
            title: "Locks a second over time, on 60 hot names",
            svg: String::new(),
        }
        .with(
            Axis::new("seconds", Scale::Linear, number),
            Axis::new("locks taken and released a second", Scale::Linear, number),
            vec![Series::new(
                Kind::Ours.title(),
                color(Kind::Ours),
                over_time,
            )],
        ),
    ];
    for (row, file, title) in [
        (
            "B1",
            "latency-B1.svg",
            "How long a call takes: one task, one name",
        ),
        (
            "B3",
            "latency-B3.svg",
            "How long a call takes: two processes, one name",
        ),
    ] {
        let series = points.iter().filter_map(|point| match point {
            Point::Latency {
                row: of,
                kind,
                latency,
                ..
            } if *of == row => {
                // Under one in a thousand there are too few calls to draw a line through.
                let tail = latency.tail().filter(|(_, share)| *share > 1e-3);
                Some(Series::new(kind.title(), color(*kind), tail.collect()))
            }
            _ => None,
        });
        let drawing = Drawn {
            file,
            title,
            svg: String::new(),
        };
        drawn.push(drawing.with(
            Axis::new("time of a call", Scale::Log(10.0), time),
            Axis::new("share of calls that take longer", Scale::Log(10.0), percent),
            series.collect(),
        ));
    }
    drawn.retain(|drawn| !drawn.svg.is_empty());
    drawn
}

impl Drawn {
    /// Draws it, if there is anything to see.
    fn with(mut self, x: Axis, y: Axis, series: Vec<Series>) -> Self {
        if series.iter().any(|series| !series.points.is_empty()) {
            self.svg = Chart {
                title: self.title,
                x,
                y,
                series,
            }
            .svg();
        }
        self
    }
}

#[derive(Default)]
struct Lines(BTreeMap<Kind, Vec<(f64, f64)>>);

impl Lines {
    fn add(&mut self, kind: Kind, x: f64, y: f64) {
        self.0.entry(kind).or_default().push((x, y));
    }

    fn series(self) -> Vec<Series> {
        let lines = self.0.into_iter().map(|(kind, mut points)| {
            points.sort_by(|(a, _), (b, _)| a.total_cmp(b));
            Series::new(kind.title(), color(kind), points)
        });
        lines.collect()
    }
}

/// Of a palette that people with colour blindness can tell apart.
fn color(kind: Kind) -> &'static str {
    match kind {
        Kind::Ours | Kind::Background => "#d55e00",
        Kind::Go => "#0072b2",
        Kind::Plain | Kind::Watching => "#009e73",
        Kind::Service => "#cc79a7",
        Kind::Python => "#b59a00",
        Kind::Raw | Kind::Mutex | Kind::Bare | Kind::Unobserved | Kind::Observed => "#555555",
        Kind::Stored => "#a0a0a0",
        Kind::Guarded => "#56b4e9",
    }
}

fn percent(share: f64) -> String {
    number(share * 100.0) + " %"
}
