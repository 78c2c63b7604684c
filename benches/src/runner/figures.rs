//! Figures of measurements: medians, ratios, and whether a target holds.

use std::fmt;

use crate::Result;

/// Several measurements of one thing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) least: f64,
    pub(crate) median: f64,
    pub(crate) most: f64,
}

impl Spread {
    /// Fails without values, because then there is no figure.
    pub(crate) fn of(values: &[f64]) -> Result<Self> {
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        let [least, .., most] = values.as_slice() else {
            let only = values.first().copied();
            return only.map(Self::from).ok_or_else(|| "nothing was measured".to_owned());
        };
        let (lower, upper) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Ok(Self { least: *least, median: f64::midpoint(lower, upper), most: *most })
    }

    /// Computes each pair's ratio, not the ratio of the medians, because other load of the machine affects both of a pair.
    pub(crate) fn ratio(ours: &[f64], theirs: &[f64]) -> Result<Self> {
        if ours.len() != theirs.len() || theirs.contains(&0.0) {
            return Err("what ours is compared with has done nothing in some round".to_owned());
        }
        let pairs = ours.iter().zip(theirs);
        Self::of(&pairs.map(|(ours, theirs)| ours / theirs).collect::<Vec<_>>())
    }

    /// Returns it in words, each number formatted by `show`.
    pub(crate) fn shown(&self, show: fn(f64) -> String) -> String {
        let (least, median, most) = (show(self.least), show(self.median), show(self.most));
        match least == most {
            true => median,
            false => format!("{median} ({least} to {most})"),
        }
    }
}

impl From<f64> for Spread {
    fn from(value: f64) -> Self {
        Self { least: value, median: value, most: value }
    }
}

/// Target of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
    /// The figure is between these two.
    Within(f64, f64),
}

impl Target {
    pub(crate) fn holds(self, figure: f64) -> bool {
        match self {
            Self::AtLeast(least) => figure >= least,
            Self::AtMost(most) => figure <= most,
            Self::Within(least, most) => (least..=most).contains(&figure),
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

/// Formats a number with at most two decimals, and separated thousands.
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
    let (mut shown, mut at) = (whole.to_owned(), whole.len());
    while at > 3 + usize::from(value < 0.0) {
        at -= 3;
        shown.insert(at, ',');
    }
    shown + rest
}

/// Formats a rate per second.
pub(crate) fn rate(value: f64) -> String {
    number(value) + "/s"
}

/// Formats a time in seconds, in a suitable unit.
pub(crate) fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => number(s * 1e6) + " µs",
        s if s < 1.0 => number(s * 1e3) + " ms",
        s => number(s) + " s",
    }
}

/// Formats a time in microseconds.
pub(crate) fn micros(value: f64) -> String {
    number(value) + " µs"
}

/// Formats an amount of memory.
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
        assert_eq!(Spread::of(&[3.0, 1.0, 2.0, 9.0, 8.0]).unwrap().shown(number), "3 (1 to 9)");
        assert_eq!(Spread::of(&[4.0, 2.0]).unwrap().median, 3.0);
        assert_eq!(Spread::of(&[5.0]).unwrap().shown(number), "5");
        assert!(Spread::of(&[]).is_err());
    }

    #[test]
    fn ratios_are_of_pairs() {
        let ratio = Spread::ratio(&[10.0, 1.0, 30.0], &[1.0, 1.0, 10.0]).unwrap();
        assert_eq!(ratio.shown(number), "3 (1 to 10)");
        for (ours, theirs) in [(&[1.0, 2.0][..], &[1.0][..]), (&[1.0], &[0.0]), (&[], &[])] {
            assert!(Spread::ratio(ours, theirs).is_err(), "{ours:?} {theirs:?}");
        }
    }

    #[test]
    fn a_target_holds_at_its_edge() {
        assert!(Target::AtLeast(0.95).holds(0.95) && !Target::AtLeast(0.95).holds(0.949));
        assert!(Target::AtMost(20.0).holds(20.0) && !Target::AtMost(20.0).holds(20.1));
        assert!(Target::Within(0.9, 1.1).holds(1.1) && !Target::Within(0.9, 1.1).holds(f64::NAN));
    }

    #[test]
    fn numbers_read_well() {
        let shown = [0.951, 4.0, 63.52, 1_234.6, 1_234_567.0, -1_000.0].map(number);
        assert_eq!(shown, ["0.95", "4", "63.5", "1,235", "1,234,567", "-1,000"]);
        assert_eq!([time(0.000_7), bytes(1_024.0)], ["700 µs", "1,024 B"]);
    }
}
