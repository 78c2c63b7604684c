//! Plot of a run: calls a second and waits over time, with the faults as bands.

use std::error::Error;
use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::combinators::IntoLogRange;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use crate::checker::calls::{self, Call};
use crate::checker::faults;
use crate::checker::liveness::HOT;
use crate::history::Event;
use crate::report::quantile;
use crate::schedule::Kind;

const SIZE: (u32, u32) = (1_500, 590);
/// Where the lower panel begins, and the legend.
const LOWER: u32 = 250;
const LEGEND: u32 = 540;
/// An SVG names its font: the viewer takes the first of these that it has.
const FONT: &str = "Helvetica, Arial, sans-serif";
/// What the panel of waits shows, in milliseconds.
const WAITS: Range<f64> = 1.0..20_000.0;
/// How much of a run is drawn, in seconds: more could not be told apart.
const SHOWN: f64 = 600.0;

/// Layers of faults, and how their bands look.
const LAYERS: [(&str, RGBColor); 4] = [
    ("workers", RGBColor(0xe6, 0x9f, 0x00)),
    ("members", RGBColor(0xcc, 0x79, 0xa7)),
    ("operator, storage", RGBColor(0x00, 0x9e, 0x73)),
    ("network", RGBColor(0x56, 0xb4, 0xe9)),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A fault: from when to when it is there, in seconds.
struct Band {
    from: f64,
    to: f64,
    color: RGBColor,
}

/// Draws a run as SVG.
pub(crate) fn draw(events: &[Event]) -> Result<String, Box<dyn Error>> {
    let start = events.first().map_or(0, |event| event.at);
    let end = events.last().map_or(start, |event| event.at);
    let length = seconds(start, end).clamp(1.0, SHOWN);
    let bands = bands(events, start, length);
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
    draw_on(area, &bands, &served(events, start, length), length)?;
    Ok(svg)
}

fn draw_on(
    area: Area<'_>,
    bands: &[Band],
    served: &[Vec<f64>],
    length: f64,
) -> Result<(), Box<dyn Error>> {
    area.fill(&WHITE)?;
    let (panels, legend) = area.split_vertically(LEGEND);
    let panels = panels.margin(8, 0, 0, 0).titled(
        "Calls and waits of four processes, while workers, members and connections fail",
        (FONT, 21, FontStyle::Bold),
    )?;
    let (upper, lower) = panels.split_vertically(LOWER);

    let calls = served.iter().map(Vec::len).zip(0..);
    let calls = calls.map(|(calls, second)| (f64::from(second) + 0.5, calls as f64));
    let most = served.iter().map(Vec::len).max().unwrap_or(0).max(1) as f64;
    panel(
        &upper,
        "calls for hot names served a second",
        (0.0..length, 0.0..most * 1.05),
        |calls| format!("{calls:.0}"),
        bands,
        vec![(RGBColor(0x00, 0x72, 0xb2), calls.collect())],
    )?;
    let seconds: Vec<_> = (0..).zip(served).collect();
    let mut waits = Vec::new();
    for (share, color) in [(0.99, RGBColor(0xd5, 0x5e, 0)), (0.5, RGBColor(51, 51, 51))] {
        // A second in which nothing was served has no waits.
        for seconds in seconds.split(|(_, waits)| waits.is_empty()) {
            let points = seconds.iter().filter_map(|(second, waits)| {
                let wait = quantile(waits, share)?;
                Some((f64::from(*second) + 0.5, wait.clamp(WAITS.start, WAITS.end)))
            });
            waits.push((color, points.collect()));
        }
    }
    panel(
        &lower,
        "wait for hot names, of calls served: median (dark), p99 (red)",
        (0.0..length, WAITS.log_scale()),
        |wait| match wait {
            wait if wait < 1e3 => format!("{wait:.0} ms"),
            wait => format!("{:.0} s", wait / 1e3),
        },
        bands,
        waits,
    )?;
    let places = legend.margin(10, 10, 90, 400).split_evenly((1, LAYERS.len()));
    for ((name, color), place) in LAYERS.iter().zip(places) {
        place.draw(&Rectangle::new([(0, 0), (22, 14)], color.mix(0.5).filled()))?;
        place.draw_text(&format!("faults of {name}"), &text(), (30, 0))?;
    }
    Ok(())
}

/// Draws bands, and lines above them.
fn panel<Y>(
    area: &Area<'_>,
    title: &str,
    (x, y): (Range<f64>, Y),
    show: fn(f64) -> String,
    bands: &[Band],
    lines: Vec<(RGBColor, Vec<(f64, f64)>)>,
) -> Result<(), Box<dyn Error>>
where
    Y: AsRangedCoord<Value = f64, CoordDescType: ValueFormatter<f64>>,
{
    let mut chart = ChartBuilder::on(area)
        .caption(title, (FONT, 16, FontStyle::Bold))
        .margin_right(25)
        .x_label_area_size(30)
        .y_label_area_size(75)
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(13)
        .x_label_formatter(&|second| format!("{second:.0} s"))
        .y_labels(5)
        .y_max_light_lines(1)
        .y_label_formatter(&|y| show(*y))
        .label_style(text())
        .bold_line_style(RGBColor(221, 221, 221))
        .draw()?;
    let range = chart.y_range();
    chart.draw_series(bands.iter().map(|band| {
        let corners = [(band.from, range.start), (band.to, range.end)];
        Rectangle::new(corners, band.color.mix(0.35).filled())
    }))?;
    for (color, points) in lines {
        chart.draw_series(LineSeries::new(points, color.stroke_width(2)))?;
    }
    Ok(())
}

fn text() -> TextStyle<'static> {
    (FONT, 16).into_font().color(&RGBColor(34, 34, 34))
}

/// The layer of a kind of fault; kinds are in the order of layers.
fn layer(kind: Kind) -> usize {
    match kind {
        Kind::WorkerKilled | Kind::WorkerStopped => 0,
        kind if kind <= Kind::AllReset => 3,
        kind if kind <= Kind::MemberReplaced => 1,
        _ => 2,
    }
}

fn bands(events: &[Event], start: u64, length: f64) -> Vec<Band> {
    let faults = faults::of(events).into_iter().map(|fault| {
        let from = seconds(start, fault.begun);
        let healed = fault.healed.map(|healed| seconds(start, healed));
        let to = healed.unwrap_or(length).min(length);
        Band {
            from,
            // Wide enough to be seen.
            to: to.max(from + length / 700.0),
            color: LAYERS[layer(fault.kind)].1,
        }
    });
    faults.filter(|band| band.from < length).collect()
}

/// The waits of the calls for hot names that were served in each second, in milliseconds, from the shortest to the longest. Other
/// calls wait for bodies that last for seconds, fault or not.
fn served(events: &[Event], start: u64, length: f64) -> Vec<Vec<f64>> {
    let mut served = vec![Vec::new(); length.ceil() as usize];
    let all = calls::of(events);
    let is_hot = |call: &&Call| call.asked.names.iter().all(|name| name.starts_with(HOT));
    for call in all.values().filter(is_hot) {
        if let Some(begun) = &call.begun
            && let Some(second) = served.get_mut(seconds(start, begun.at) as usize)
        {
            second.push(seconds(call.asked_at, begun.at) * 1e3);
        }
    }
    for second in &mut served {
        second.sort_unstable_by(f64::total_cmp);
    }
    served
}

fn seconds(from: u64, to: u64) -> f64 {
    to.saturating_sub(from) as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_panels_have_bands_and_labels() {
        let bands = [Band { from: 1.0, to: 2.0, color: RGBColor(1, 2, 3) }];
        let mut svg = String::new();
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        draw_on(area, &bands, &[vec![5.0], vec![], vec![7.0, 9.0]], 3.0).unwrap();
        assert_eq!(svg.matches("fill=\"#010203\"").count(), 2);
        assert_eq!(svg.matches("height=\"14\"").count(), LAYERS.len());
        for text in ["10 ms", "10 s", "3 s", "faults of members"] {
            assert!(svg.contains(&format!("{text}\n")), "{text}: {svg}");
        }
    }
}
