//! Texts of others: escaped and cut before they reach an error or a log (invariant I9).

use std::fmt::Write;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_acts_is_escaped_and_other_text_is_not() {
        for text in ["", "orders::ship", "C:\\app \"x\" 'y'", "Müller 東京 <id>"] {
            assert_eq!(shown(text, 200), text);
        }
        for (text, expected) in [
            ("a\nERROR b", "a\\nERROR b"),
            ("a\r\tb\0", "a\\r\\tb\\0"),
            ("\u{1b}[2J", "\\u{1b}[2J"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("\u{2066}x\u{202e}", "\\u{2066}x\\u{202e}"),
            ("a\u{200b}\u{feff}", "a\\u{200b}\\u{feff}"),
            ("\u{2028}b\u{85}\u{e0041}", "\\u{2028}b\\u{85}\\u{e0041}"),
        ] {
            assert_eq!(shown(text, 200), expected);
        }
    }

    #[test]
    fn long_text_is_cut_and_no_escape_is_torn() {
        assert_eq!(shown("abcdef", 6), "abcdef");
        assert_eq!(shown("abcdefg", 6), "abcdef…");
        assert_eq!(shown("abc\u{1b}", 8), "abc…");
        assert_eq!(shown(&"\u{202e}".repeat(1_000_000), 200).chars().count(), 201);
    }
}
