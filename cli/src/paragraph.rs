//! Paragraph: a text behind a mark, in lines that a terminal does not break inside a word, so that keys and commands can be copied.

use std::io::{self, IsTerminal};

use ratatui::crossterm::terminal;

/// How far the text stands from the left.
const INDENT: usize = 4;

/// Lays a text out on the terminal; in a pipe it is one line.
pub(crate) fn paragraph(mark: &str, text: &str) -> String {
    let columns = match io::stdout().is_terminal() {
        true => terminal::size().map_or(80, |(columns, _)| usize::from(columns)),
        false => usize::MAX,
    };
    laid_out(mark, text, columns)
}

/// Lays a text out in so many columns. A word that is longer has a line of its own.
fn laid_out(mark: &str, text: &str, columns: usize) -> String {
    let mut all = format!("{mark:INDENT$}");
    let mut at = INDENT;
    for word in text.split(' ') {
        let width = word.chars().count();
        if at > INDENT {
            match at + 1 + width > columns {
                true => {
                    all.push_str(&format!("\n{:INDENT$}", ""));
                    at = INDENT;
                }
                false => {
                    all.push(' ');
                    at += 1;
                }
            }
        }
        all.push_str(word);
        at += width;
    }
    all.push('\n');
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_between_words() {
        let text = "two keys: locks/orders/7, b";
        assert_eq!(laid_out("BAD", text, 20), "BAD two keys:\n    locks/orders/7,\n    b\n");
        assert_eq!(laid_out("", text, 34), "    two keys: locks/orders/7, b\n");
        assert_eq!(laid_out("ok ", "toolong a", 5), "ok  toolong\n    a\n");
        assert_eq!(laid_out("ok ", text, usize::MAX), format!("ok  {text}\n"));
    }
}
