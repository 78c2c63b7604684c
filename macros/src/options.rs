//! Options of the attribute: how each is written, what its value must be, and which contradict each other.

use std::time::Duration;

use syn::parse::ParseStream;
use syn::{Expr, Ident, Path, Result};

use crate::typo::nearest;
use crate::value::{
    OnHeld, OnLost, Release, Wait, absolute_path, at_least, at_most, expression, on_held, on_lost,
    permits, release, string, ttl, wait,
};

/// Every option, with an example; the example of a flag is the word itself.
const OPTIONS: &[(&str, &str)] = &[
    ("wait", r#"wait = "5s""#),
    ("ttl", r#"ttl = "30s""#),
    ("at_most", r#"at_most = "5s""#),
    ("at_least", r#"at_least = "5s""#),
    ("deadline", "deadline = request.deadline"),
    ("when", "when = urgent"),
    ("detach", "detach"),
    ("reentrant", "reentrant"),
    ("on_held", r#"on_held = "skip""#),
    ("on_lost", r#"on_lost = "continue""#),
    ("release", r#"release = "background""#),
    ("shared", "shared"),
    ("permits", "permits = 5"),
    ("map_err", "map_err = AppError::from"),
    ("on_error", "on_error = |error| error.into_response()"),
    ("locks", "locks = &self.locks"),
    ("crate", "crate = ::etcd_locked"),
];

#[derive(Default)]
pub(crate) struct Options {
    pub(crate) wait: Option<Wait>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) at_most: Option<Duration>,
    pub(crate) at_least: Option<Duration>,
    pub(crate) deadline: Option<Expr>,
    pub(crate) when: Option<Expr>,
    pub(crate) detach: bool,
    pub(crate) reentrant: bool,
    pub(crate) on_held: OnHeld,
    pub(crate) on_lost: OnLost,
    pub(crate) release: Release,
    pub(crate) shared: bool,
    pub(crate) permits: Option<u16>,
    pub(crate) map_err: Option<Expr>,
    pub(crate) on_error: Option<Expr>,
    pub(crate) locks: Option<Expr>,
    pub(crate) krate: Option<Path>,
    /// All options as they were written, except `crate`.
    pub(crate) written: Vec<String>,
}

impl Options {
    /// Reads the value of an option that has one; `write` is its example.
    pub(crate) fn value(&mut self, key: &str, write: &str, input: ParseStream<'_>) -> Result<()> {
        match key {
            "wait" => self.wait = Some(wait(&string(input, key, write)?)?),
            "ttl" => self.ttl = Some(ttl(&string(input, key, write)?)?),
            "at_most" => self.at_most = Some(at_most(&string(input, key, write)?)?),
            "at_least" => self.at_least = Some(at_least(&string(input, key, write)?)?),
            "deadline" => self.deadline = Some(expression(input, key, write)?),
            "when" => self.when = Some(expression(input, key, write)?),
            "on_lost" => self.on_lost = on_lost(&string(input, key, write)?)?,
            "on_held" => self.on_held = on_held(&string(input, key, write)?)?,
            "release" => self.release = release(&string(input, key, write)?)?,
            "permits" => self.permits = Some(permits(input, write)?),
            "map_err" => self.map_err = Some(expression(input, key, write)?),
            "on_error" => self.on_error = Some(expression(input, key, write)?),
            "locks" => self.locks = Some(expression(input, key, write)?),
            _ => self.krate = Some(absolute_path(input)?),
        }
        Ok(())
    }

    /// Sets a flag.
    pub(crate) fn flag(&mut self, key: &str) {
        match key {
            "detach" => self.detach = true,
            "shared" => self.shared = true,
            _ => self.reentrant = true,
        }
        self.written.push(key.to_owned());
    }

    /// Finds what contradicts `key`, the option that was read last, and returns the message.
    pub(crate) fn contradiction(&self, key: &str) -> Option<&'static str> {
        match key {
            "map_err" | "on_error" if self.map_err.is_some() && self.on_error.is_some() => {
                Some("`map_err` and `on_error` both convert the error; keep one")
            }
            "shared" | "permits" if self.shared && self.permits.is_some() => Some(
                "`shared` is for any number of readers, `permits` for a fixed number; keep one",
            ),
            "at_least" | "shared" if self.at_least.is_some() && self.shared => Some(
                "readers keep nothing locked once they have gone: remove `at_least` or `shared`",
            ),
            "at_least" | "at_most"
                if self
                    .at_most
                    .is_some_and(|most| self.at_least.is_some_and(|least| least > most)) =>
            {
                Some("`at_least` is longer than `at_most`; shorten it, or give the body longer")
            }
            "wait" | "deadline" if self.wait == Some(Wait::Once) && self.deadline.is_some() => {
                Some(
                    r#"`wait = "none"` does not wait, so there is nothing for `deadline` to bound; keep one"#,
                )
            }
            _ => None,
        }
    }
}

fn words() -> impl Iterator<Item = &'static str> {
    OPTIONS.iter().map(|(word, _)| *word)
}

/// Returns the example of an option; `None` if there is no such option.
pub(crate) fn example(word: &str) -> Option<&'static str> {
    OPTIONS
        .iter()
        .find(|(option, _)| *option == word)
        .map(|(_, write)| *write)
}

/// Returns true if the word is an option by itself.
pub(crate) fn is_flag(word: &str) -> bool {
    OPTIONS.contains(&(word, word))
}

/// Words the error for an option with a missing or needless value.
pub(crate) fn miswritten(key: &str, write: &str) -> String {
    if key == write {
        format!("option `{key}` has no value; write `{key}` alone")
    } else {
        format!("option `{key}` needs a value; write `{write}`")
    }
}

/// Words the error for a bare word that is no binding of the function; `None` unless an option was probably meant.
pub(crate) fn misplaced(word: &Ident) -> Option<String> {
    let key = word.to_string();
    if let Some(write) = example(&key) {
        return Some(miswritten(&key, write));
    }
    // Types and constants have uppercase letters.
    let lower = !key.contains(char::is_uppercase);
    (lower && nearest(&key, words()).is_some()).then(|| unknown(word))
}

/// Words the error for a word that is no option.
pub(crate) fn unknown(word: &Ident) -> String {
    match nearest(&word.to_string(), words()) {
        Some(near) => format!("unknown option `{word}`; did you mean `{near}`?"),
        None => format!(
            "unknown option `{word}`; the options are `{}`",
            words().collect::<Vec<_>>().join("`, `")
        ),
    }
}
