//! A line chart as SVG: one line a series, readable on any background.

use std::fmt::Write as _;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 34.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 56.0;
/// Of a line of the legend.
const LEGEND: f64 = 20.0;

#[derive(Clone, Copy)]
pub(super) enum Scale {
    /// From zero.
    Linear,
    /// A tick at each power of this.
    Log(f64),
}

pub(super) struct Axis {
    label: &'static str,
    scale: Scale,
    show: fn(f64) -> String,
}

pub(super) struct Series {
    name: String,
    color: &'static str,
    pub(super) points: Vec<(f64, f64)>,
}

pub(super) struct Chart {
    pub(super) title: &'static str,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) series: Vec<Series>,
}

impl Axis {
    pub(super) fn new(label: &'static str, scale: Scale, show: fn(f64) -> String) -> Self {
        Self { label, scale, show }
    }

    /// What it goes from and to, so that all values are on it.
    fn range(&self, values: impl Iterator<Item = f64>) -> (f64, f64) {
        let (least, most) = values.fold((f64::INFINITY, 0.0), |(least, most): (f64, f64), v| {
            (least.min(v), most.max(v))
        });
        match self.scale {
            Scale::Linear => (0.0, most * 1.05),
            Scale::Log(base) => {
                let power = |value: f64| value.max(1e-12).log(base);
                let from = base.powf((power(least) + 1e-9).floor());
                let to = base.powf((power(most) - 1e-9).ceil());
                (from, if to > from { to } else { from * base })
            }
        }
    }

    /// How far along the axis a value is, from 0 to 1.
    fn place(&self, value: f64, (from, to): (f64, f64)) -> f64 {
        match self.scale {
            Scale::Linear => (value - from) / (to - from),
            Scale::Log(_) => (value / from).ln() / (to / from).ln(),
        }
    }

    fn ticks(&self, (from, to): (f64, f64)) -> Vec<f64> {
        match self.scale {
            Scale::Log(base) => {
                // Not too many: every second one, if need be.
                let step = match (to / from).log(base) > 8.5 {
                    true => base * base,
                    false => base,
                };
                let ticks = std::iter::successors(Some(from), |tick| Some(tick * step));
                ticks.take_while(|tick| *tick <= to * 1.000_001).collect()
            }
            Scale::Linear => {
                let rough = to / 6.0;
                let unit = 10_f64.powf(rough.log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0]
                    .into_iter()
                    .map(|factor| factor * unit)
                    .find(|step| *step >= rough)
                    .unwrap_or(rough);
                let ticks = (0..).map(|tick| f64::from(tick) * step);
                ticks.take_while(|tick| *tick <= to).collect()
            }
        }
    }

    /// Lines between ticks, without a number.
    fn between(&self, range: (f64, f64)) -> Vec<f64> {
        match self.scale {
            Scale::Log(base) if base > 3.0 => {
                let ticks = self.ticks(range);
                let within = ticks
                    .iter()
                    .flat_map(|tick| (2..10).map(move |n| tick * f64::from(n)));
                within.filter(|line| *line < range.1).collect()
            }
            _ => Vec::new(),
        }
    }
}

impl Series {
    pub(super) fn new(name: &str, color: &'static str, points: Vec<(f64, f64)>) -> Self {
        Self {
            name: name.replace('`', ""),
            color,
            points,
        }
    }
}

impl Chart {
    pub(super) fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let x_range = self.x.range(points().map(|(x, _)| *x));
        let y_range = self.y.range(points().map(|(_, y)| *y));
        let legend_rows = self.series.len().div_ceil(3);
        let bottom = HEIGHT - BOTTOM - LEGEND * legend_rows as f64;
        let x_at = |x: f64| LEFT + self.x.place(x, x_range) * (WIDTH - LEFT - RIGHT);
        let y_at = |y: f64| bottom - self.y.place(y, y_range) * (bottom - TOP);

        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
             font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\" fill=\"#222\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n"
        );
        // Writing to a string does not fail.
        let mut line = |text: String| {
            let _ = writeln!(svg, "{text}");
        };
        let text = |x: f64, y: f64, more: &str, text: &str| {
            format!(
                "<text x=\"{x:.1}\" y=\"{y:.1}\"{more}>{}</text>",
                escaped(text)
            )
        };
        let rule = |x1: f64, y1: f64, x2: f64, y2: f64, color: &str| {
            format!("<path d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" stroke=\"{color}\"/>")
        };
        line(text(
            LEFT,
            26.0,
            " font-size=\"16\" font-weight=\"bold\"",
            self.title,
        ));
        for y in self.y.between(y_range) {
            line(rule(LEFT, y_at(y), WIDTH - RIGHT, y_at(y), "#f2f2f2"));
        }
        for x in self.x.between(x_range) {
            line(rule(x_at(x), TOP, x_at(x), bottom, "#f2f2f2"));
        }
        for y in self.y.ticks(y_range) {
            line(rule(LEFT, y_at(y), WIDTH - RIGHT, y_at(y), "#d8d8d8"));
            let label = (self.y.show)(y);
            line(text(
                LEFT - 8.0,
                y_at(y) + 4.5,
                " text-anchor=\"end\"",
                &label,
            ));
        }
        for x in self.x.ticks(x_range) {
            line(rule(x_at(x), TOP, x_at(x), bottom, "#d8d8d8"));
            let label = (self.x.show)(x);
            line(text(
                x_at(x),
                bottom + 18.0,
                " text-anchor=\"middle\"",
                &label,
            ));
        }
        line(rule(LEFT, TOP, LEFT, bottom, "#666"));
        line(rule(LEFT, bottom, WIDTH - RIGHT, bottom, "#666"));
        let middle = f64::midpoint(LEFT, WIDTH - RIGHT);
        line(text(
            middle,
            bottom + 38.0,
            " text-anchor=\"middle\"",
            self.x.label,
        ));
        let turned = format!(
            " text-anchor=\"middle\" transform=\"rotate(-90 18 {0:.1})\"",
            f64::midpoint(TOP, bottom)
        );
        line(text(
            18.0,
            f64::midpoint(TOP, bottom),
            &turned,
            self.y.label,
        ));

        for (at, series) in self.series.iter().enumerate() {
            let places: Vec<String> = series
                .points
                .iter()
                .map(|(x, y)| format!("{:.1} {:.1}", x_at(*x), y_at(*y)))
                .collect();
            let color = series.color;
            line(format!(
                "<path d=\"M{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2.2\" stroke-linejoin=\"round\"/>",
                places.join("L")
            ));
            // Dots say what was measured, unless there are too many to tell apart.
            for (x, y) in series.points.iter().filter(|_| places.len() <= 12) {
                line(format!(
                    "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.6\" fill=\"{color}\"/>",
                    x_at(*x),
                    y_at(*y)
                ));
            }
            let left = LEFT + (at % 3) as f64 * (WIDTH - LEFT - RIGHT) / 3.0;
            let top = bottom + 60.0 + (at / 3) as f64 * LEGEND;
            line(format!(
                "<path d=\"M{left:.1} {:.1}h24\" stroke=\"{color}\" stroke-width=\"3\"/>",
                top - 4.5
            ));
            line(text(left + 32.0, top, "", &series.name));
        }
        svg + "</svg>\n"
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(scale: Scale) -> Axis {
        Axis::new("", scale, |value| value.to_string())
    }

    #[test]
    fn all_values_are_on_the_axis() {
        let log = axis(Scale::Log(10.0));
        let range = log.range([90.0, 1_000.0, 63_000.0].into_iter());
        assert!((range.0 / 10.0 - 1.0).abs() < 1e-9 && (range.1 / 1e5 - 1.0).abs() < 1e-9);
        assert!((log.place(1_000.0, range) - 0.5).abs() < 1e-9);
        assert_eq!(log.ticks(range).len(), 5);
        let linear = axis(Scale::Linear);
        let range = linear.range([50.0, 100.0].into_iter());
        assert_eq!(linear.ticks(range), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        let doubling = axis(Scale::Log(2.0));
        assert_eq!(doubling.ticks((1.0, 1_024.0)).len(), 6);
        assert_eq!(doubling.ticks((2.0, 256.0)).len(), 8);
    }

    #[test]
    fn a_chart_names_its_axes_and_its_lines() {
        let chart = Chart {
            title: "how <fast>",
            x: Axis::new("tasks", Scale::Log(2.0), |value| value.to_string()),
            y: Axis::new("calls", Scale::Linear, |value| value.to_string()),
            series: vec![Series::new(
                "Go `x`",
                "#123456",
                vec![(1.0, 2.0), (4.0, 3.0)],
            )],
        };
        let svg = chart.svg();
        for part in [
            "how &lt;fast>",
            ">tasks<",
            ">calls<",
            ">Go x<",
            "#123456",
            "#fff",
        ] {
            assert!(svg.contains(part), "{part}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }
}
