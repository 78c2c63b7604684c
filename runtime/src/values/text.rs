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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_acts_is_escaped_and_no_escape_is_torn() {
        for text in ["", "orders::ship", "C:\\app \"x\" 'y'", "Müller 東京 <id>"] {
            assert_eq!(shown(text, 200), text);
        }
        for (text, limit, expected) in [
            ("a\nERROR b\r\t\0", 200, "a\\nERROR b\\r\\t\\0"),
            ("\u{1b}[2J\u{9b}31m", 200, "\\u{1b}[2J\\u{9b}31m"),
            ("\u{2066}x\u{202e}\u{200b}\u{feff}", 200, "\\u{2066}x\\u{202e}\\u{200b}\\u{feff}"),
            ("\u{2028}b\u{85}\u{e0041}", 200, "\\u{2028}b\\u{85}\\u{e0041}"),
            ("abcdef", 6, "abcdef"),
            ("abcdefg", 6, "abcdef…"),
            ("abc\u{1b}", 8, "abc…"),
        ] {
            assert_eq!(shown(text, limit), expected);
        }
    }
}
