//! Which plots there are, and what is on them.

use std::collections::BTreeMap;

use plotters::style::RGBColor;

use super::crew::Kind;
use super::figures::{number, time};
use super::row::Point;
use crate::Result;

mod chart;

use chart::{Axis, Chart, Scale, Series};

/// A plot as a file.
pub(crate) struct Drawn {
    pub(crate) file: &'static str,
    pub(crate) title: &'static str,
    pub(crate) svg: String,
}

const CHARTS: [(&str, Chart); 5] = [
    (
        "tasks.svg",
        Chart {
            title: "Locks a second over tasks, each with a name of its own",
            scale: Scale::Log(2.0),
            x: Axis("tasks of one process", number),
            y: Axis("locks taken and released a second", number),
        },
    ),
    (
        "processes.svg",
        Chart {
            title: "Hand-overs a second of one name over processes",
            scale: Scale::Log(2.0),
            x: Axis("processes that contend for one name", number),
            y: Axis("hand-overs a second", number),
        },
    ),
    (
        "time.svg",
        Chart {
            title: "Locks a second over time, on 60 hot names",
            scale: Scale::Linear,
            x: Axis("seconds", number),
            y: Axis("locks taken and released a second", number),
        },
    ),
    (
        "latency-B1.svg",
        Chart {
            title: "How long a call takes: one task, one name",
            scale: Scale::Log(10.0),
            x: Axis("time of a call", time),
            y: Axis("share of calls that take longer", percent),
        },
    ),
    (
        "latency-B3.svg",
        Chart {
            title: "How long a call takes: two processes, one name",
            scale: Scale::Log(10.0),
            x: Axis("time of a call", time),
            y: Axis("share of calls that take longer", percent),
        },
    ),
];

/// All for which there are points.
pub(crate) fn of(points: &[Point]) -> Result<Vec<Drawn>> {
    let mut drawn = Vec::new();
    for (file, chart) in CHARTS {
        let mut lines: BTreeMap<Kind, Vec<(f64, f64)>> = BTreeMap::new();
        for (kind, places) in points.iter().filter_map(|point| on(file, point)) {
            lines.entry(kind).or_default().extend(places);
        }
        if lines.is_empty() {
            continue;
        }
        let series = lines.into_iter().map(|(kind, mut points)| {
            points.sort_by(|(a, _), (b, _)| a.total_cmp(b));
            Series { name: kind.title().replace('`', ""), color: color(kind), points }
        });
        let svg = chart.svg(&series.collect::<Vec<_>>());
        drawn.push(Drawn {
            file,
            title: chart.title,
            svg: svg.map_err(|error| format!("{file}: {error}"))?,
        });
    }
    Ok(drawn)
}

/// Whose line a point belongs to in this file, and where it lies.
fn on(file: &str, point: &Point) -> Option<(Kind, Vec<(f64, f64)>)> {
    match (file, point) {
        ("tasks.svg", Point::Tasks(kind, x, y))
        | ("processes.svg", Point::Processes(kind, x, y)) => Some((*kind, vec![(*x, *y)])),
        ("time.svg", Point::Time(x, y)) => Some((Kind::Ours, vec![(*x, *y)])),
        ("latency-B1.svg", Point::Latency { row: "B1", kind, latency, .. })
        | ("latency-B3.svg", Point::Latency { row: "B3", kind, latency, .. }) => {
            // Under one in a thousand there are too few calls to draw a line through.
            let tail = latency.tail().filter(|(_, share)| *share > 1e-3);
            Some((*kind, tail.collect()))
        }
        _ => None,
    }
}

/// Of a palette that people with colour blindness can tell apart.
fn color(kind: Kind) -> RGBColor {
    let (red, green, blue) = match kind {
        Kind::Ours | Kind::Background => (0xd5, 0x5e, 0x00),
        Kind::Go => (0x00, 0x72, 0xb2),
        Kind::Plain | Kind::Watching => (0x00, 0x9e, 0x73),
        Kind::Service => (0xcc, 0x79, 0xa7),
        Kind::Python => (0xb5, 0x9a, 0x00),
        Kind::Raw | Kind::Mutex | Kind::Bare | Kind::Unobserved | Kind::Observed | Kind::Fenced => {
            (85, 85, 85)
        }
        Kind::Stored => (160, 160, 160),
        Kind::Guarded => (0x56, 0xb4, 0xe9),
    };
    RGBColor(red, green, blue)
}

fn percent(share: f64) -> String {
    number(share * 100.0) + " %"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::Latency;
    use std::time::Duration;

    #[test]
    fn each_plot_has_the_lines_of_its_points() {
        let mut latency = Latency::default();
        for micros in [700, 800, 900] {
            latency.record(Duration::from_micros(micros));
        }
        let drawn = of(&[
            Point::Tasks(Kind::Ours, 256.0, 17_000.0),
            Point::Tasks(Kind::Go, 1.0, 800.0),
            Point::Latency { row: "B3", work: "2 processes", kind: Kind::Python, latency },
        ]);
        let drawn = drawn.unwrap();
        let files: Vec<_> = drawn.iter().map(|plot| plot.file).collect();
        assert_eq!(files, ["tasks.svg", "latency-B3.svg"]);
        let [tasks, latency] = [&drawn[0].svg, &drawn[1].svg];
        assert!(tasks.contains("etcd-locked\n") && tasks.contains("Go concurrency\n"));
        assert!(latency.contains("Python aetcd\n") && !latency.contains("etcd-locked\n"));
    }
}
