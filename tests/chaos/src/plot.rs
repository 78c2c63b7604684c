//! Plot of a run: calls a second and waits over time, with the faults as bands.

use std::fmt::Write as _;

use crate::checker::calls::{self, Call};
use crate::checker::faults;
use crate::checker::liveness::HOT;
use crate::history::Event;

const WIDTH: f64 = 1_500.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
/// Top and height of the panel of calls.
const CALLS: (f64, f64) = (60.0, 180.0);
/// Top and height of the panel of waits.
const WAITS: (f64, f64) = (280.0, 220.0);
const HEIGHT: f64 = 590.0;
/// What the panel of waits shows, in milliseconds.
const LEAST: f64 = 1.0;
const MOST: f64 = 20_000.0;
/// How much of a run is drawn, in seconds: more could not be told apart.
const SHOWN: f64 = 600.0;

/// A layer of faults: how its bands look, and which words begin the names of its kinds.
const LAYERS: [(&str, &str, &[&str]); 4] = [
    ("workers", "#e69f00", &["worker killed", "worker stopped"]),
    (
        "members",
        "#cc79a7",
        &["member", "leader", "quorum", "all members"],
    ),
    (
        "operator, storage",
        "#009e73",
        &[
            "lease",
            "key",
            "junk key",
            "compaction",
            "no space",
            "role",
            "password",
            "etcd wiped",
            "etcd restored",
        ],
    ),
    (
        "network",
        "#56b4e9",
        &[
            "worker cut off",
            "requests",
            "answers",
            "connections",
            "delay",
            "trickle",
            "half-open",
            "endpoint",
            "all connections",
        ],
    ),
];

/// Draws a run as SVG.
pub(crate) fn draw(events: &[Event]) -> String {
    let start = events.first().map_or(0, |event| event.at);
    let length = events
        .last()
        .map_or(1.0, |event| seconds(start, event.at))
        .clamp(1.0, SHOWN);
    let x = |second: f64| LEFT + second / length * (WIDTH - LEFT - RIGHT);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"Helvetica, Arial, sans-serif\" \
         font-size=\"13\" fill=\"#222\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"26\" font-size=\"17\" font-weight=\"bold\">Calls and waits of four processes, while workers, members and \
         connections fail</text>\n"
    );
    bands(&mut svg, events, start, length, x);

    let served = served(events, start, length);
    let most = served
        .iter()
        .map(|second| second.len())
        .max()
        .unwrap_or(0)
        .max(1) as f64;
    let (top, height) = CALLS;
    let y = |rate: f64| top + height - rate / most * height;
    for share in [0.0, 0.5, 1.0] {
        rule(&mut svg, y(share * most), &format!("{:.0}", share * most));
    }
    let points = served.iter().enumerate();
    let points = points.map(|(second, waits)| (x(second as f64 + 0.5), y(waits.len() as f64)));
    line(&mut svg, points, "#0072b2");
    caption(&mut svg, CALLS, "calls for hot names served a second");

    let (top, height) = WAITS;
    let y = |wait: f64| {
        let share = (wait.clamp(LEAST, MOST) / LEAST).ln() / (MOST / LEAST).ln();
        top + height - share * height
    };
    for (wait, text) in [
        (1.0, "1 ms"),
        (10.0, "10 ms"),
        (100.0, "100 ms"),
        (1_000.0, "1 s"),
        (10_000.0, "10 s"),
    ] {
        rule(&mut svg, y(wait), text);
    }
    for (share, color) in [(0.99, "#d55e00"), (0.5, "#333333")] {
        // A second in which nothing was served has no waits.
        let served: Vec<_> = served.iter().enumerate().collect();
        for seconds in served.split(|(_, waits)| waits.is_empty()) {
            let points = seconds.iter().map(|(second, waits)| {
                let at = ((waits.len() - 1) as f64 * share) as usize;
                (x(*second as f64 + 0.5), y(waits[at]))
            });
            line(&mut svg, points, color);
        }
    }
    caption(
        &mut svg,
        WAITS,
        "wait for hot names, of calls served: median (dark), p99 (red)",
    );
    let mut tick = 0.0;
    while tick <= length {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{tick:.0} s</text>",
            x(tick),
            top + height + 20.0
        );
        tick += if length > 200.0 { 60.0 } else { 10.0 };
    }
    let mut left = LEFT;
    let legend = LAYERS
        .iter()
        .map(|(name, color, _)| (format!("faults of {name}"), *color));
    for (name, color) in legend {
        let _ = writeln!(
            svg,
            "<rect x=\"{left}\" y=\"{:.1}\" width=\"22\" height=\"14\" fill=\"{color}\" fill-opacity=\"0.45\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{name}</text>",
            HEIGHT - 40.0,
            left + 30.0,
            HEIGHT - 28.0
        );
        left += 240.0;
    }
    svg + "</svg>\n"
}

/// The layer of a kind of fault.
fn layer(kind: &str) -> Option<&'static (&'static str, &'static str, &'static [&'static str])> {
    let mut layers = LAYERS.iter();
    layers.find(|(_, _, words)| words.iter().any(|word| kind.starts_with(word)))
}

/// One band a fault, over both panels; its name shows where the pointer is.
fn bands(svg: &mut String, events: &[Event], start: u64, length: f64, x: impl Fn(f64) -> f64) {
    let (top, bottom) = (CALLS.0, WAITS.0 + WAITS.1);
    for fault in faults::of(events) {
        let from = seconds(start, fault.begun);
        let to = fault
            .healed
            .map_or(length, |healed| seconds(start, healed))
            .min(length);
        if from >= length {
            continue;
        }
        let color = layer(&fault.kind).map_or("#999999", |layer| layer.1);
        let width = (x(to) - x(from)).max(2.0);
        // Writing to a string does not fail.
        let _ = writeln!(
            svg,
            "<rect x=\"{:.1}\" y=\"{top}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"{color}\" fill-opacity=\"0.35\"><title>{}, {} \
             ({from:.1}–{to:.1} s)</title></rect>",
            x(from),
            bottom - top,
            fault.kind,
            fault.target
        );
    }
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

fn rule(svg: &mut String, y: f64, label: &str) {
    let _ = writeln!(
        svg,
        "<path d=\"M{LEFT} {y:.1}H{:.1}\" stroke=\"#ddd\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
        WIDTH - RIGHT,
        LEFT - 8.0,
        y + 4.5
    );
}

fn caption(svg: &mut String, (top, _): (f64, f64), text: &str) {
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"{:.1}\" font-weight=\"bold\">{text}</text>",
        top - 10.0
    );
}

fn line(svg: &mut String, points: impl Iterator<Item = (f64, f64)>, color: &str) {
    let points: Vec<String> = points.map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
    if points.is_empty() {
        return;
    }
    let _ = writeln!(
        svg,
        "<path d=\"M{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.6\"/>",
        points.join("L")
    );
}

#[cfg(test)]
mod tests {
    use super::layer;
    use crate::schedule::Kind;

    #[test]
    fn every_kind_of_fault_has_its_layer() {
        for word in Kind::words() {
            assert!(layer(word).is_some(), "{word}");
        }
        let name = |word| layer(word).map(|(name, ..)| *name);
        assert_eq!(name("password changed"), Some("operator, storage"));
        assert_eq!(name("all connections reset"), Some("network"));
        assert_eq!(name("all members restarted"), Some("members"));
    }
}
