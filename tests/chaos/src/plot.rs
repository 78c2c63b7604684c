//! Plot of a run: waits over time, with the faults as bands.

use std::error::Error;
use std::ops::Range;

use plotters::coord::combinators::IntoLogRange;
use plotters::prelude::*;

use crate::checker::calls;
use crate::checker::faults;
use crate::checker::liveness::HOT;
use crate::history::Event;
use crate::report::quantile;
use crate::schedule::Kind;

const SIZE: (u32, u32) = (1_500, 360);
const LEGEND: u32 = 310;
/// An SVG names its font: the viewer takes the first of these that it has.
const FONT: &str = "Helvetica, Arial, sans-serif";
/// The waits that are shown, in milliseconds.
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

/// The layer of a kind of fault; kinds are in the order of layers.
fn layer(kind: Kind) -> usize {
    match kind {
        Kind::WorkerKilled | Kind::WorkerStopped => 0,
        kind if kind <= Kind::AllReset => 3,
        kind if kind <= Kind::MemberReplaced => 1,
        _ => 2,
    }
}

pub(crate) fn draw(events: &[Event]) -> Result<String, Box<dyn Error>> {
    let start = events.first().map_or(0, |event| event.at);
    let end = events.last().map_or(start, |event| event.at);
    let length = seconds(start, end).clamp(1.0, SHOWN);
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let (panel, legend) = area.split_vertically(LEGEND);
    let text = (FONT, 16).into_font().color(&RGBColor(34, 34, 34));
    let mut chart = ChartBuilder::on(&panel)
        .caption(
            "Wait for hot names in four processes, while workers, members and connections fail: median (dark), p99 (red)",
            (FONT, 18, FontStyle::Bold),
        )
        .margin(8)
        .margin_right(25)
        .x_label_area_size(30)
        .y_label_area_size(75)
        .build_cartesian_2d(0.0..length, WAITS.log_scale())?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(13)
        .x_label_formatter(&|second| format!("{second:.0} s"))
        .y_labels(5)
        .y_max_light_lines(1)
        .y_label_formatter(&|wait| match *wait {
            wait if wait < 1e3 => format!("{wait:.0} ms"),
            wait => format!("{:.0} s", wait / 1e3),
        })
        .label_style(text.clone())
        .bold_line_style(RGBColor(221, 221, 221))
        .draw()?;
    chart.draw_series(faults::of(events).iter().map(|fault| {
        let from = seconds(start, fault.begun);
        let to = fault.healed.map_or(length, |healed| seconds(start, healed)).min(length);
        // Wide enough to be seen.
        let corners = [(from.min(length), WAITS.start), (to.max(from + length / 700.0), WAITS.end)];
        Rectangle::new(corners, LAYERS[layer(fault.kind)].1.mix(0.35).filled())
    }))?;
    let waits: Vec<_> = (0..).zip(waits(events, start, length)).collect();
    for (share, color) in [(0.99, RGBColor(0xd5, 0x5e, 0)), (0.5, RGBColor(51, 51, 51))] {
        // A second in which nothing was served has no waits.
        for seconds in waits.split(|(_, waits)| waits.is_empty()) {
            let points = seconds.iter().filter_map(|(second, waits)| {
                let wait = quantile(waits, share)?;
                Some((f64::from(*second) + 0.5, wait.clamp(WAITS.start, WAITS.end)))
            });
            chart.draw_series(LineSeries::new(points, color.stroke_width(2)))?;
        }
    }
    let places = legend.margin(10, 10, 90, 400).split_evenly((1, LAYERS.len()));
    for ((name, color), place) in LAYERS.iter().zip(places) {
        place.draw(&Rectangle::new([(0, 0), (22, 14)], color.mix(0.5).filled()))?;
        place.draw_text(&format!("faults of {name}"), &text, (30, 0))?;
    }
    drop((chart, panel, legend, area));
    Ok(svg)
}

/// The waits of the calls for hot names that were served in each second, in milliseconds, from the shortest to the longest. Other
/// calls wait for bodies that last for seconds, fault or not.
fn waits(events: &[Event], start: u64, length: f64) -> Vec<Vec<f64>> {
    let mut served = vec![Vec::new(); length.ceil() as usize];
    for call in calls::of(events).into_values().filter(|call| call.asked.kind == HOT) {
        if let Some(begun) = &call.begun
            && let Some(second) = served.get_mut(seconds(start, begun.at) as usize)
        {
            second.push(seconds(call.asked_at, begun.at) * 1e3);
        }
    }
    served.iter_mut().for_each(|second| second.sort_unstable_by(f64::total_cmp));
    served
}

fn seconds(from: u64, to: u64) -> f64 {
    to.saturating_sub(from) as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::tests::history;

    #[test]
    fn a_plot_has_waits_bands_and_labels() {
        let svg = draw(&history(
            "0 holds 1.1 kind=hot; 1000-2000 fault junk_key on=hot/0; 3000 holds 1.2 kind=hot",
        ));
        let svg = svg.expect("a plot");
        assert_eq!(svg.matches("opacity=\"0.35\" fill=\"#009E73\"").count(), 1, "{svg}");
        assert_eq!(svg.matches("height=\"14\"").count(), LAYERS.len());
        for text in ["10 ms", "10 s", "3 s", "faults of members"] {
            assert!(svg.contains(&format!("{text}\n")), "{text}: {svg}");
        }
    }
}
