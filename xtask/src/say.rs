//! Progress messages for the person at the terminal, on stderr; results go to stdout.

use std::fmt::Display;
use std::io::IsTerminal;

/// Announces the next step.
pub(crate) fn step(title: impl Display) {
    if std::io::stderr().is_terminal() {
        eprintln!("\n\x1b[1m== {title}\x1b[0m");
    } else {
        eprintln!("\n== {title}");
    }
}

/// Prints a note inside a step.
pub(crate) fn note(text: impl Display) {
    eprintln!("   {text}");
}
