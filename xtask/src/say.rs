//! What the person at the terminal reads while we work. Results go to stdout, this to stderr.

use std::fmt::Display;
use std::io::IsTerminal;

/// The next step begins.
pub(crate) fn step(title: impl Display) {
    if std::io::stderr().is_terminal() {
        eprintln!("\n\x1b[1m== {title}\x1b[0m");
    } else {
        eprintln!("\n== {title}");
    }
}

/// Something worth knowing inside a step.
pub(crate) fn note(text: impl Display) {
    eprintln!("   {text}");
}
