//! Finding of `doctor`: what is so, whether that is well, and what to do.

use std::fmt;

use serde_json::{Value, json};

use crate::paragraph::paragraph;

#[derive(Debug)]
pub(super) struct Finding {
    /// Stable name of the kind of finding, for scripts; cli/JSON.md lists them.
    code: &'static str,
    /// `false`: it is to be mended. `None`: this user cannot see it.
    well: Option<bool>,
    what: String,
    /// What to do about it; empty, if nothing.
    mend: String,
}

impl Finding {
    pub(super) fn good(code: &'static str, what: impl Into<String>) -> Self {
        Self { code, well: Some(true), what: what.into(), mend: String::new() }
    }

    pub(super) fn bad(
        code: &'static str,
        what: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self { code, well: Some(false), what: what.into(), mend: mend.into() }
    }

    pub(super) fn unseen(code: &'static str, what: impl Into<String>, mend: &str) -> Self {
        Self { code, well: None, what: what.into(), mend: mend.to_owned() }
    }

    /// False if it is to be mended.
    pub(super) fn is_bearable(&self) -> bool {
        self.well != Some(false)
    }

    pub(super) fn object(&self) -> Value {
        let Self { code, well, what, mend } = self;
        json!({ "code": code, "ok": well, "what": what, "mend": mend })
    }
}

/// As a person reads it, in lines.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.well {
            Some(true) => "ok ",
            Some(false) => "BAD",
            None => "?  ",
        };
        f.write_str(&paragraph(mark, &self.what))?;
        match &*self.mend {
            "" => Ok(()),
            mend => f.write_str(&paragraph("", mend)),
        }
    }
}
