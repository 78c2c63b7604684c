//! Output: the only way of a text to standard output and standard error. A test greps for others.
//!
//! Keys, values, records, versions and errors come from others, so every line is escaped here, whatever it is made of.

use std::borrow::Cow;
use std::fmt::{self, Arguments, Display, Write as _};
use std::io::{self, IsTerminal, Write};
use std::iter;

use ratatui::crossterm::terminal;
use serde_json::Value;

/// How far a paragraph stands from its mark's beginning.
const INDENT: usize = 4;

/// Text as a terminal may have it: in one line, with nothing that a terminal obeys, reorders or hides. What is escaped stays as it is.
pub(crate) struct Shown<'a>(pub(crate) &'a str);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match acts(c) {
            true => write!(f, "{}", c.escape_debug()),
            false => f.write_char(c),
        })
    }
}

fn acts(c: char) -> bool {
    // `escape_debug` also knows quotes, which do no harm here.
    !matches!(c, '"' | '\'' | '\\') && c.escape_debug().len() > 1
}

pub(crate) fn on_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Prints a line.
pub(crate) fn print(line: &str) -> io::Result<()> {
    print_fields(&[line])
}

/// Prints a text in as many lines as the terminal needs; in a pipe it is one line.
pub(crate) fn print_paragraph(mark: &str, text: &str) -> io::Result<()> {
    let columns = match on_terminal() {
        true => terminal::size().map_or(80, |(columns, _)| usize::from(columns)),
        false => usize::MAX,
    };
    let marks = [mark].into_iter().chain(iter::repeat(""));
    let mut lines = marks.zip(lines(text, columns.saturating_sub(INDENT)));
    lines.try_for_each(|(mark, line)| print(&format!("{mark:INDENT$}{line}")))
}

/// Breaks a text between words into lines of this width. A longer word has a line of its own.
pub(crate) fn lines(text: &str, width: usize) -> Vec<String> {
    let whole = textwrap::Options::new(width).break_words(false);
    let whole = whole.word_splitter(textwrap::WordSplitter::NoHyphenation);
    textwrap::wrap(&Shown(text).to_string(), whole).into_iter().map(Cow::into_owned).collect()
}

/// Prints fields in a line, between tabs.
pub(crate) fn print_fields(fields: &[impl AsRef<str>]) -> io::Result<()> {
    let fields: Vec<_> = fields.iter().map(|it| Shown(it.as_ref()).to_string()).collect();
    print_own((fields.join("\t") + "\n").as_bytes())
}

/// Prints an object in a line. JSON itself lets a few characters through that act on a terminal.
pub(crate) fn print_object(object: &Value) -> io::Result<()> {
    let mut line = String::new();
    for c in object.to_string().chars() {
        match acts(c) {
            true => {
                c.encode_utf16(&mut [0; 2]).iter().for_each(|it| line += &format!("\\u{it:04x}"))
            }
            false => line.push(c),
        }
    }
    print(&line)
}

/// Prints what this program has made: scripts, an empty screen. Nothing of others may be in it.
pub(crate) fn print_own(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// Says something in a line on standard error, where there is one: a closed pipe is no reason to panic.
pub(crate) fn say(line: Arguments<'_>) {
    // One write, so that no line of a command comes in between.
    let _ = io::stderr().write_all(format!("{}\n", Shown(&line.to_string())).as_bytes());
}

/// Says the beginning of a line, which the user's answer ends.
pub(crate) fn ask(question: Arguments<'_>) -> io::Result<()> {
    write!(io::stderr(), "{} ", Shown(&question.to_string()))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn text_that_acts_on_a_terminal_is_escaped_once() {
        for (text, escaped) in [
            ("C:\\app \"x\" 'y' Müller 東京", "C:\\app \"x\" 'y' Müller 東京"),
            ("a\nb\r\t\0\u{7f}", "a\\nb\\r\\t\\0\\u{7f}"),
            ("\u{1b}[2J\u{9b}31m\u{202e}\u{200b}", "\\u{1b}[2J\\u{9b}31m\\u{202e}\\u{200b}"),
        ] {
            let once = Shown(text).to_string();
            assert_eq!((&*once, Shown(&once).to_string()), (escaped, escaped.to_owned()));
        }
    }

    /// Ratatui writes to the terminal too: what a line or a cell is made of there is `Shown`.
    #[test]
    fn no_source_prints_but_through_this_file() {
        let ways = r"std(out|err)\(\)|print(ln)?!|dbg!|/dev/tty|Line::from\([^S]|(Text|Cells)::(new|from)\(|Span::|Paragraph";
        let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
        let grep =
            Command::new("grep").args(["-rnE", "--exclude=output.rs", ways, sources]).output();
        let found = grep.expect("`grep` runs");
        assert_eq!(String::from_utf8_lossy(&found.stdout), "");
        assert_eq!(found.status.code(), Some(1), "{found:?}");
    }
}
