//! What the person at the terminal reads while we measure. Results go to stdout, this to stderr.

use std::fmt::Display;

/// A row begins.
pub(crate) fn step(title: impl Display) {
    eprintln!("\n== {title}");
}

pub(crate) fn note(text: impl Display) {
    eprintln!("   {text}");
}
