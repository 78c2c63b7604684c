//! What measurements come to: medians, ratios, and whether a target holds. Pure.

use std::fmt;

/// Several measurements of one thing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) least: f64,
    pub(crate) median: f64,
    pub(crate) most: f64,
}

impl Spread {
    /// `None` of nothing: there is no figure then.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let upper = *values.get(values.len() / 2)?;
        let lower = *values.get((values.len() - 1) / 2)?;
        let median = f64::midpoint(lower, upper);
        Some(Self { least, median, most })
    }

    /// Each pair's ratio, not the ratio of the medians: what the machine did meanwhile hit both of a pair.
    pub(crate) fn ratio(ours: &[f64], theirs: &[f64]) -> Option<Self> {
        if ours.len() != theirs.len() || theirs.contains(&0.0) {
            return None;
        }
        Self::of(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs))
    }

    /// In words, each number as `show` has it.
    pub(crate) fn shown(&self, show: fn(f64) -> String) -> String {
        let (least, median, most) = (show(self.least), show(self.median), show(self.most));
        match least == most {
            true => median,
            false => format!("{median} ({least} to {most})"),
        }
    }
}

/// What a figure must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
    /// Between these two.
    Within(f64, f64),
}

impl Target {
    pub(crate) fn verdict(self, figure: f64) -> Verdict {
        let holds = match self {
            Self::AtLeast(least) => figure >= least,
            Self::AtMost(most) => figure <= most,
            Self::Within(least, most) => (least..=most).contains(&figure),
        };
        match holds {
            true => Verdict::Holds,
            false => Verdict::Missed,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::AtLeast(least) => write!(f, "≥ {}", number(least)),
            Self::AtMost(most) => write!(f, "≤ {}", number(most)),
            Self::Within(least, most) => write!(f, "{} to {}", number(least), number(most)),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Holds,
    Missed,
    /// There is no target.
    Untargeted,
}

impl Verdict {
    /// As the report has it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Missed => "**missed**",
            Self::Untargeted => "",
        }
    }
}

/// Three digits that mean something, and thousands apart.
pub(crate) fn number(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut shown = String::new();
    for (at, digit) in whole.chars().enumerate() {
        let left = whole.len() - at;
        if at > 0 && left % 3 == 0 && !shown.ends_with('-') {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown + rest
}

/// So many a second.
pub(crate) fn rate(value: f64) -> String {
    number(value) + "/s"
}

/// A time in seconds, in the unit that suits it.
pub(crate) fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => number(s * 1e6) + " µs",
        s if s < 1.0 => number(s * 1e3) + " ms",
        s => number(s) + " s",
    }
}

/// Memory.
pub(crate) fn bytes(value: f64) -> String {
    match value.abs() {
        b if b < 10_000.0 => number(value) + " B",
        b if b < 1e7 => number(value / 1024.0) + " KiB",
        _ => number(value / 1024.0 / 1024.0) + " MiB",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        let spread = Spread::of([3.0, 1.0, 2.0, 9.0, 8.0]).unwrap();
        assert_eq!(spread.shown(number), "3 (1 to 9)");
        assert_eq!(Spread::of([4.0, 2.0]).unwrap().median, 3.0);
        assert_eq!(Spread::of([5.0]).unwrap().shown(number), "5");
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn ratios_are_of_pairs() {
        let ratio = Spread::ratio(&[10.0, 1.0, 30.0], &[1.0, 1.0, 10.0]).unwrap();
        assert_eq!(ratio.shown(number), "3 (1 to 10)");
    }

    #[test]
    fn without_a_peers_figure_there_is_no_ratio() {
        assert_eq!(Spread::ratio(&[1.0, 2.0], &[1.0]), None);
        assert_eq!(Spread::ratio(&[1.0], &[0.0]), None);
        assert_eq!(Spread::ratio(&[], &[]), None);
    }

    #[test]
    fn a_target_holds_at_its_edge() {
        assert_eq!(Target::AtLeast(0.95).verdict(0.95), Verdict::Holds);
        assert_eq!(Target::AtLeast(0.95).verdict(0.949), Verdict::Missed);
        assert_eq!(Target::AtMost(20.0).verdict(20.1), Verdict::Missed);
        assert_eq!(Target::Within(0.9, 1.1).verdict(1.0), Verdict::Holds);
        assert_eq!(Target::Within(0.9, 1.1).verdict(f64::NAN), Verdict::Missed);
        assert_eq!(Target::AtLeast(0.95).to_string(), "≥ 0.95");
    }

    #[test]
    fn numbers_read_well() {
        let shown = [0.951, 4.0, 63.52, 1_234.6, 1_234_567.0, -1_000.0].map(number);
        assert_eq!(shown, ["0.95", "4", "63.5", "1,235", "1,234,567", "-1,000"]);
        assert_eq!(time(0.000_7), "700 µs");
        assert_eq!(time(5.75), "5.75 s");
        assert_eq!(bytes(1_024.0), "1,024 B");
    }
}
