//! Texts of others: escaped and cut before they reach an error or a log (invariant I9).

use std::error::Error;
use std::fmt::Write;
use std::iter::successors;

/// How much of a key is shown: more than any key of ours has.
pub(crate) const KEY: usize = 2_000;

/// Returns the text as it may be shown: in one line, with nothing that a terminal obeys, reorders or hides, at most `limit`
/// characters, and `…` if it was cut.
pub(crate) fn shown(text: &str, limit: usize) -> String {
    let mut shown = String::with_capacity(text.len().min(limit));
    let mut room = limit;
    for c in text.chars() {
        // `escape_debug` also knows quotes, which do no harm here.
        let escaped = match c {
            '"' | '\'' | '\\' => None,
            _ => Some(c.escape_debug()).filter(|escaped| escaped.len() > 1),
        };
        let length = escaped.as_ref().map_or(1, ExactSizeIterator::len);
        if length > room {
            shown.push('…');
            break;
        }
        room -= length;
        let _ = match escaped {
            Some(escaped) => write!(shown, "{escaped}"), // memory can be written to
            None => shown.write_char(c),
        };
    }
    shown
}

/// Returns what an error and its sources say, for a line of the log.
pub(crate) fn chain(error: &dyn Error) -> String {
    let all = successors(Some(error), |&error| error.source()).map(ToString::to_string);
    all.collect::<Vec<_>>().join(": ")
}
