//! Foreign texts: escaped and cut before they reach an error or a log (invariant I9).

use std::error::Error;
use std::fmt::Write;
use std::iter::successors;

/// Length to which a key is cut: longer than any key of ours.
pub(crate) const KEY: usize = 2_000;

/// Returns the text in one line, of at most `limit` characters, with `…` if it was cut. Escapes what would control a terminal or disguise
/// text.
pub(crate) fn shown(text: &str, limit: usize) -> String {
    let mut shown = String::with_capacity(text.len().min(limit));
    let mut room = limit;
    for c in text.chars() {
        // `escape_debug` also escapes quotes, which are harmless here.
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
            Some(escaped) => write!(shown, "{escaped}"), // writing to memory does not fail
            None => shown.write_char(c),
        };
    }
    shown
}

/// Returns the texts of an error and its sources, for a log line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let all = successors(Some(error), |&error| error.source()).map(ToString::to_string);
    all.collect::<Vec<_>>().join(": ")
}
