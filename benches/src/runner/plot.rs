//! Plots: line charts as SVG, with one line per peer, readable on any background.

use std::collections::BTreeMap;
use std::error::Error;
use std::ops::Range;

use plotters::coord::combinators::IntoLogRange;
use plotters::prelude::*;

use super::figures::{number, time};
use super::row::Outcome;
use crate::Result;
use crate::kind::Kind;

const WIDTH: u32 = 760;
/// Height of a chart without its legend.
const HEIGHT: u32 = 390;
/// Height of a line of the legend.
const LINE: u32 = 20;
/// Columns of the legend.
const COLUMNS: usize = 2;
/// Fonts that an SVG names; the viewer uses the first of these that it has.
const FONT: &str = "Helvetica, Arial, sans-serif";

/// Points of each peer.
type Lines = BTreeMap<Kind, Vec<(f64, f64)>>;
type Rows = [(&'static str, Outcome)];

/// Plot as a file.
pub(crate) struct Drawn {
    pub(crate) file: &'static str,
    pub(crate) title: &'static str,
    pub(crate) svg: String,
}

/// File, title, and labels of the axes.
const CHARTS: [[&str; 4]; 4] = [
    [
        "tasks.svg",
        "Locks a second over tasks, each with a name of its own",
        "tasks of one process",
        "locks taken and released a second",
    ],
    [
        "processes.svg",
        "Hand-overs a second of one name over processes",
        "processes that contend for one name",
        "hand-overs a second",
    ],
    ["latency-B1.svg", "How long a call takes: one task, one name", TIME, LONGER],
    ["latency-B3.svg", "How long a call takes: two processes, one name", TIME, LONGER],
];
const TIME: &str = "time of a call";
const LONGER: &str = "share of calls that take longer";

/// Draws all plots for which there are points.
pub(crate) fn of(rows: &Rows) -> Result<Vec<Drawn>> {
    let mut drawn = Vec::new();
    for [file, title, x, y] in CHARTS {
        let lines = lines(file, rows);
        if !lines.is_empty() {
            let svg = svg([title, x, y], &lines).map_err(|error| format!("{file}: {error}"))?;
            drawn.push(Drawn { file, title, svg });
        }
    }
    Ok(drawn)
}

fn lines(file: &str, rows: &Rows) -> Lines {
    let mut lines = Lines::new();
    for (row, outcome) in rows {
        for (_, kind, point) in outcome.points.iter().filter(|(plot, ..)| *plot == file) {
            lines.entry(*kind).or_default().push(*point);
        }
        let latencies = outcome.latencies.iter().filter(|_| file == format!("latency-{row}.svg"));
        for (_, kind, latency) in latencies {
            // Below one in a thousand there are too few calls for a line.
            lines.insert(*kind, latency.tail().filter(|(_, share)| *share > 1e-3).collect());
        }
    }
    for points in lines.values_mut() {
        points.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    }
    lines
}

/// Returns a colour of a palette that people with colour blindness can distinguish.
fn color(kind: Kind) -> RGBColor {
    let (red, green, blue) = match kind {
        Kind::Ours | Kind::Background => (0xd5, 0x5e, 0x00),
        Kind::Go => (0x00, 0x72, 0xb2),
        Kind::Plain | Kind::Watching => (0x00, 0x9e, 0x73),
        Kind::Service => (0xcc, 0x79, 0xa7),
        Kind::Python => (0xb5, 0x9a, 0x00),
        Kind::Single => (160, 160, 160),
        Kind::Guarded => (0x56, 0xb4, 0xe9),
        _ => (85, 85, 85),
    };
    RGBColor(red, green, blue)
}

/// Draws the first line thick, and above the others.
fn svg([title, x, y]: [&str; 3], lines: &Lines) -> Result<String, Box<dyn Error>> {
    let (xs, ys): (Vec<f64>, Vec<f64>) = lines.values().flatten().copied().unzip();
    let rows = lines.len().div_ceil(COLUMNS);
    let size = (WIDTH, HEIGHT + LINE * rows as u32 + 10);
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    area.fill(&WHITE)?;
    let (above, legend) = area.split_vertically(HEIGHT);
    // Horizontal ticks are at powers of the base, vertical ones at powers of ten.
    let (base, between) = if x == TIME { (10.0, 10) } else { (2.0, 1) };
    let show_x = if x == TIME { time } else { number };
    let show_y = if x == TIME { percent } else { number };
    let plot = above.margin(8, 0, 0, 0).titled(title, (FONT, 20, FontStyle::Bold))?;
    let text = || (FONT, 16).into_font().color(&RGBColor(34, 34, 34));
    let mut chart = ChartBuilder::on(&plot)
        .margin(10)
        .margin_right(34)
        .x_label_area_size(46)
        .y_label_area_size(80)
        .build_cartesian_2d(
            powers(base, &xs).log_scale().base(base),
            powers(10.0, &ys).log_scale(),
        )?;
    chart
        .configure_mesh()
        .x_labels(8)
        .x_max_light_lines(between)
        .x_desc(x)
        .x_label_formatter(&|x| show_x(*x))
        .y_labels(8)
        .y_desc(y)
        .y_label_formatter(&|y| show_y(*y))
        .label_style(text())
        .bold_line_style(RGBColor(216, 216, 216))
        .light_line_style(RGBColor(242, 242, 242))
        .draw()?;
    let style = |at, kind| color(kind).stroke_width(if at == 0 { 4 } else { 2 });
    for (at, (kind, points)) in lines.iter().enumerate().rev() {
        // Dots mark what was measured, unless there are too many.
        let dots = if points.len() <= 12 { 4 } else { 0 };
        let line = LineSeries::new(points.iter().copied(), style(at, *kind).filled());
        chart.draw_series(line.point_size(dots))?;
    }
    let places = legend.margin(0, 10, 90, 10).split_evenly((rows, COLUMNS));
    for (at, (kind, place)) in lines.keys().zip(places).enumerate() {
        place.draw(&PathElement::new([(0, 8), (24, 8)], style(at, *kind)))?;
        place.draw_text(&kind.title().replace('`', ""), &text(), (32, 2))?;
    }
    // The drawing is written when the last of them is dropped.
    drop((chart, plot, above, legend, area));
    Ok(svg)
}

/// Returns a range from a power to a power that contains all values.
fn powers(base: f64, values: &[f64]) -> Range<f64> {
    let powers = || values.iter().map(|value| value.max(1e-12).log(base));
    let least = (powers().fold(f64::INFINITY, f64::min) + 1e-9).floor();
    let most = (powers().fold(f64::NEG_INFINITY, f64::max) - 1e-9).ceil();
    // Slightly wider, because rounding would remove the outer ticks.
    base.powf(least - 1e-9)..base.powf(most.max(least + 1.0) + 1e-9)
}

fn percent(share: f64) -> String {
    number(share * 100.0) + " %"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_names_its_axes_lines_and_ticks() {
        let points = [(Kind::Ours, (256.0, 17_000.0)), (Kind::Go, (2.0, 800.0))];
        let points = points.map(|(kind, point)| ("tasks.svg", kind, point)).into();
        let drawn = of(&[("B2", Outcome { points, ..Outcome::default() })]).unwrap();
        assert_eq!(drawn.len(), 1);
        let svg = &drawn[0].svg;
        let texts = svg.split("</text>").filter_map(|text| Some(text.rsplit_once('>')?.1.trim()));
        let texts: Vec<_> = texts.collect();
        for text in ["etcd-locked", "Go concurrency", "tasks of one process", "2", "256", "1,000"] {
            assert!(texts.contains(&text), "{text}: {texts:?}");
        }
        assert!(!texts.contains(&"512") && !svg.contains("NaN"), "{texts:?}");
    }
}
