//! Finding of `doctor`: a fact, whether it is a problem, and what to do.

use std::io;

use serde_json::json;

use crate::output::{print_object, print_paragraph};

#[derive(Debug)]
pub(super) struct Finding {
    /// Stable name of the kind of finding, for scripts; cli/JSON.md lists them.
    code: &'static str,
    /// `false` for a problem. `None` if it is unknown, for example because this user may not see it.
    well: Option<bool>,
    what: String,
    /// What to do about it; empty if nothing.
    mend: String,
}

impl Finding {
    pub(super) fn good(code: &'static str, what: impl Into<String>) -> Self {
        Self { code, well: Some(true), what: what.into(), mend: String::new() }
    }

    pub(super) fn bad(code: &'static str, what: impl Into<String>, mend: &str) -> Self {
        Self { code, well: Some(false), what: what.into(), mend: mend.to_owned() }
    }

    pub(super) fn unseen(code: &'static str, what: impl Into<String>, mend: &str) -> Self {
        Self { code, well: None, what: what.into(), mend: mend.to_owned() }
    }

    /// Returns false for a problem.
    pub(super) fn is_bearable(&self) -> bool {
        self.well != Some(false)
    }

    /// Prints it as lines for people, or as an object.
    pub(super) fn print(&self, json: bool) -> io::Result<()> {
        let Self { code, well, what, mend } = self;
        if json {
            return print_object(&json!({ "code": code, "ok": well, "what": what, "mend": mend }));
        }
        let mark = match well {
            Some(true) => "ok ",
            Some(false) => "BAD",
            None => "?  ",
        };
        print_paragraph(mark, what)?;
        if mend.is_empty() { Ok(()) } else { print_paragraph("", mend) }
    }
}
