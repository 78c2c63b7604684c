//! Paragraph: a text behind a mark, in lines that a terminal does not break inside a word, so that keys and commands can be copied.

use std::io::{self, IsTerminal};

use ratatui::crossterm::terminal;

const INDENT: usize = 4;

/// Lays a text out on the terminal; in a pipe it is one line.
pub(crate) fn paragraph(mark: &str, text: &str) -> String {
    let columns = match io::stdout().is_terminal() {
        true => terminal::size().map_or(80, |(columns, _)| usize::from(columns)),
        false => usize::MAX,
    };
    let lines = lines(text, columns.saturating_sub(INDENT));
    format!("{mark:INDENT$}{}\n", lines.join(&format!("\n{:INDENT$}", "")))
}

/// Breaks a text between words into lines of this width. A longer word has a line of its own.
pub(crate) fn lines(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut left = 0;
    for word in text.split(' ') {
        let wanted = word.chars().count() + 1;
        match lines.last_mut() {
            Some(line) if wanted <= left => {
                line.extend([" ", word]);
                left -= wanted;
            }
            _ => {
                lines.push(word.to_owned());
                left = (width + 1).saturating_sub(wanted);
            }
        }
    }
    lines
}
