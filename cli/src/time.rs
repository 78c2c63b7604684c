//! Times of records, by the clocks of their hosts.

use std::time::{Duration, SystemTime};

/// How long ago a time of a record was, by this machine's clock; nothing if it is no time. One in the future was just now.
pub(crate) fn ago(rfc3339: &str) -> Option<Duration> {
    let then = humantime::parse_rfc3339(rfc3339).ok()?;
    Some(SystemTime::now().duration_since(then).unwrap_or_default())
}

/// A duration for people: two units at most, seconds being the smallest.
pub(crate) fn shown(duration: Duration) -> String {
    let secs = duration.as_secs();
    let units = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
    let first = units.iter().position(|(_, of)| secs >= *of);
    let Some(first) = first else {
        return "<1s".to_owned();
    };
    let (unit, of) = units[first];
    let rest = units.get(first + 1).filter(|(_, of)| secs % units[first].1 >= *of);
    match rest {
        Some((smaller, small)) => format!("{}{unit} {}{smaller}", secs / of, secs % of / small),
        None => format!("{}{unit}", secs / of),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units_at_most() {
        for (secs, text) in [
            (0, "<1s"),
            (59, "59s"),
            (60, "1m"),
            (3_599, "59m 59s"),
            (3_601, "1h"),
            (90_061, "1d 1h"),
        ] {
            assert_eq!(shown(Duration::from_secs(secs)), text);
        }
    }
}
