//! A line chart as SVG: one line a series, readable on any background.

use std::error::Error;
use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::combinators::IntoLogRange;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

const WIDTH: u32 = 760;
/// Of a chart without its legend.
const HEIGHT: u32 = 390;
/// Of a line of the legend.
const LINE: u32 = 20;
/// Of the legend.
const COLUMNS: usize = 2;
/// An SVG names its font: the viewer takes the first of these that it has.
const FONT: &str = "Helvetica, Arial, sans-serif";

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Done<T = ()> = Result<T, Box<dyn Error>>;

#[derive(Clone, Copy)]
pub(super) enum Scale {
    /// From zero.
    Linear,
    /// Ticks at powers of ten; from left to right, at powers of this.
    Log(f64),
}

/// Its label, and how it shows a value.
pub(super) struct Axis(pub(super) &'static str, pub(super) fn(f64) -> String);

pub(super) struct Series {
    pub(super) name: String,
    pub(super) color: RGBColor,
    pub(super) points: Vec<(f64, f64)>,
}

pub(super) struct Chart {
    pub(super) title: &'static str,
    pub(super) scale: Scale,
    pub(super) x: Axis,
    pub(super) y: Axis,
}

impl Chart {
    /// Draws the first series thick, and above the others.
    pub(super) fn svg(&self, series: &[Series]) -> Done<String> {
        let points = series.iter().flat_map(|series| &series.points);
        let (xs, ys): (Vec<f64>, Vec<f64>) = points.copied().unzip();
        let rows = series.len().div_ceil(COLUMNS);
        let size = (WIDTH, HEIGHT + LINE * rows as u32 + 10);
        let mut svg = String::new();
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        area.fill(&WHITE)?;
        let (plot, legend) = area.split_vertically(HEIGHT);
        match self.scale {
            Scale::Linear => self.draw(&plot, from_zero(&xs), from_zero(&ys), 1, series)?,
            Scale::Log(base) => {
                let x = powers(base, &xs).log_scale().base(base);
                let between = if base < 10.0 { 1 } else { 10 };
                self.draw(&plot, x, powers(10.0, &ys).log_scale(), between, series)?;
            }
        }
        let places = legend.margin(0, 10, 90, 10).split_evenly((rows, COLUMNS));
        for (at, (series, place)) in series.iter().zip(places).enumerate() {
            place.draw(&PathElement::new([(0, 8), (24, 8)], series.style(at)))?;
            place.draw_text(&series.name, &text(), (32, 2))?;
        }
        // The drawing is written when the last of them is dropped.
        drop((area, plot, legend));
        Ok(svg)
    }

    fn draw<X, Y>(&self, area: &Area<'_>, x: X, y: Y, between: usize, series: &[Series]) -> Done
    where
        X: AsRangedCoord<Value = f64, CoordDescType: ValueFormatter<f64>>,
        Y: AsRangedCoord<Value = f64, CoordDescType: ValueFormatter<f64>>,
    {
        let area = area.margin(8, 0, 0, 0);
        let area = area.titled(self.title, (FONT, 20, FontStyle::Bold))?;
        let mut chart = ChartBuilder::on(&area)
            .margin(10)
            .margin_right(34)
            .x_label_area_size(46)
            .y_label_area_size(80)
            .build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .x_labels(8)
            .x_max_light_lines(between)
            .x_desc(self.x.0)
            .x_label_formatter(&|x| (self.x.1)(*x))
            .y_labels(8)
            .y_desc(self.y.0)
            .y_label_formatter(&|y| (self.y.1)(*y))
            .label_style(text())
            .bold_line_style(RGBColor(216, 216, 216))
            .light_line_style(RGBColor(242, 242, 242))
            .draw()?;
        for (at, series) in series.iter().enumerate().rev() {
            // Dots say what was measured, unless there are too many to tell apart.
            let dots = if series.points.len() <= 12 { 4 } else { 0 };
            let line = LineSeries::new(series.points.iter().copied(), series.style(at).filled());
            chart.draw_series(line.point_size(dots))?;
        }
        Ok(())
    }
}

impl Series {
    fn style(&self, at: usize) -> ShapeStyle {
        self.color.stroke_width(if at == 0 { 4 } else { 2 })
    }
}

fn text() -> TextStyle<'static> {
    (FONT, 16).into_font().color(&RGBColor(34, 34, 34))
}

fn from_zero(values: &[f64]) -> Range<f64> {
    0.0..values.iter().copied().fold(0.0, f64::max) * 1.05
}

/// From a power to a power, so that all values are within.
fn powers(base: f64, values: &[f64]) -> Range<f64> {
    let powers = || values.iter().map(|value| value.max(1e-12).log(base));
    let least = (powers().fold(f64::INFINITY, f64::min) + 1e-9).floor();
    let most = (powers().fold(f64::NEG_INFINITY, f64::max) - 1e-9).ceil();
    // A hair more: rounding would take the outer ticks away.
    base.powf(least - 1e-9)..base.powf(most.max(least + 1.0) + 1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(scale: Scale, points: &[(f64, f64)]) -> String {
        let chart = Chart {
            title: "how <fast>",
            scale,
            x: Axis("tasks", |x| format!("{x:.3}")),
            y: Axis("calls", |y| format!("{y:.3}")),
        };
        let series = ["ours", "Go"].map(|name| Series {
            name: name.to_owned(),
            color: RGBColor(1, 2, 3),
            points: points.to_vec(),
        });
        chart.svg(&series).unwrap()
    }

    /// The texts of a chart, in the order in which they are drawn.
    fn texts(svg: &str) -> Vec<&str> {
        let parts = svg.split("</text>").filter_map(|part| part.split_once("<text"));
        parts.filter_map(|(_, text)| Some(text.split_once('>')?.1.trim())).collect()
    }

    #[test]
    fn a_chart_names_its_axes_and_its_lines() {
        let svg = chart(Scale::Linear, &[(1.0, 2.0), (4.0, 3.0)]);
        for text in ["how &lt;fast&gt;", "tasks", "calls", "ours", "Go"] {
            assert!(texts(&svg).contains(&text), "{text}: {svg}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn the_first_line_is_thick_and_on_top() {
        let svg = chart(Scale::Linear, &[(1.0, 2.0), (4.0, 3.0)]);
        let lines =
            svg.lines().filter(|line| line.contains("polyline") && line.contains("#010203"));
        let last = lines.take(2).last().unwrap();
        assert!(last.contains("stroke-width=\"4\""), "{last}");
    }

    #[test]
    fn all_values_are_between_two_ticks() {
        let log = chart(Scale::Log(2.0), &[(2.0, 0.002), (256.0, 1.0)]);
        let texts = texts(&log);
        for tick in ["2.000", "4.000", "128.000", "256.000", "0.001", "0.010", "1.000"] {
            assert!(texts.contains(&tick), "{tick}: {texts:?}");
        }
        assert!(!texts.contains(&"512.000") && !texts.contains(&"10.000"));
        let linear = chart(Scale::Linear, &[(50.0, 100.0)]);
        assert!(
            self::texts(&linear).contains(&"0.000") && self::texts(&linear).contains(&"100.000")
        );
    }
}
