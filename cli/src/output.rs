//! Output to standard output and standard error. All text goes through here; a test greps for other ways.
//!
//! Keys, values, records, versions and errors are written by other programs, so every line is escaped here.

use std::borrow::Cow;
use std::fmt::{self, Arguments, Display, Write as _};
use std::io::{self, IsTerminal, Write};
use std::iter;

use ratatui::crossterm::terminal;
use serde_json::Value;

/// Indentation of a paragraph, from the start of its mark.
const INDENT: usize = 4;

/// Text that is safe for a terminal: one line, with everything escaped that a terminal obeys, reorders or hides. Escapes stay as they are.
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
    // `escape_debug` also escapes quotes, which are harmless here.
    !matches!(c, '"' | '\'' | '\\') && c.escape_debug().len() > 1
}

pub(crate) fn on_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Prints a line.
pub(crate) fn print(line: &str) -> io::Result<()> {
    print_fields(&[line])
}

/// Prints a text, wrapped to the terminal's width; in a pipe as one line.
pub(crate) fn print_paragraph(mark: &str, text: &str) -> io::Result<()> {
    let columns = match on_terminal() {
        // Some terminals report 0 columns.
        true => terminal::size().map_or(80, |(columns, _)| usize::from(columns).max(40)),
        false => usize::MAX,
    };
    let marks = [mark].into_iter().chain(iter::repeat(""));
    let mut lines = marks.zip(lines(text, columns.saturating_sub(INDENT)));
    lines.try_for_each(|(mark, line)| print(&format!("{mark:INDENT$}{line}")))
}

/// Breaks a text between words into lines of this width. A longer word gets a separate line.
pub(crate) fn lines(text: &str, width: usize) -> Vec<String> {
    let whole = textwrap::Options::new(width).break_words(false);
    let whole = whole.word_splitter(textwrap::WordSplitter::NoHyphenation);
    textwrap::wrap(&Shown(text).to_string(), whole).into_iter().map(Cow::into_owned).collect()
}

/// Prints fields in one line, separated by tabs.
pub(crate) fn print_fields(fields: &[impl AsRef<str>]) -> io::Result<()> {
    let fields: Vec<_> = fields.iter().map(|it| Shown(it.as_ref()).to_string()).collect();
    print_own((fields.join("\t") + "\n").as_bytes())
}

/// Prints an object in one line. JSON alone leaves a few characters unescaped that act on a terminal.
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

/// Prints bytes that this program made, such as scripts and an empty screen. They must not contain other programs' text.
pub(crate) fn print_own(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// Prints a line on standard error. Ignores a failure, because a closed pipe is not a reason to panic.
pub(crate) fn say(line: Arguments<'_>) {
    // One write, so that a command's output cannot come in between.
    let _ = io::stderr().write_all(format!("{}\n", Shown(&line.to_string())).as_bytes());
}

/// Prints a question on standard error; the user's answer ends the line.
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

    /// Ratatui writes to the terminal too, so its lines and cells are made of `Shown` texts.
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
