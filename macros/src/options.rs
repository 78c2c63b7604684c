//! Options of the attribute: their words, the form of their values, and the options that contradict each other.

use std::time::Duration;

use syn::parse::ParseStream;
use syn::{Expr, Ident, Path, Result};

use crate::typo::nearest;
use crate::value::{
    Given, OnHeld, OnLost, Proof, Release, Wait, absolute_path, expression, max_hold, min_hold,
    on_held, on_lost, permits, proof, release, string, time, ttl, wait,
};

/// Every option, with an example; the example of a flag is the word itself.
const OPTIONS: &[(&str, &str)] = &[
    ("wait", r#"wait = "5s""#),
    ("ttl", r#"ttl = "30s""#),
    ("max_hold", r#"max_hold = "5s""#),
    ("min_hold", r#"min_hold = "5s""#),
    ("wait_until", "wait_until = request.deadline"),
    ("when", "when = urgent"),
    ("detach", "detach"),
    ("reentrant", "reentrant"),
    ("on_held", r#"on_held = "skip""#),
    ("on_lost", r#"on_lost = "continue""#),
    ("release", r#"release = "background""#),
    ("shared", "shared"),
    ("permits", "permits = 5"),
    ("proof", "proof = order"),
    ("map_err", "map_err = AppError::from"),
    ("on_error", "on_error = |error| error.into_response()"),
    ("locks", "locks = &self.locks"),
    ("crate", "crate = ::etcd_locked"),
];

/// Words for an option in other libraries, and in earlier commits, each with its word here.
const SYNONYMS: &[(&str, &str)] = &[
    ("timeout", "wait"),
    ("max_wait", "wait"),
    ("deadline", "wait_until"),
    ("at_most", "max_hold"),
    ("lock_at_most_for", "max_hold"),
    ("at_least", "min_hold"),
    ("lock_at_least_for", "min_hold"),
    ("guard", "proof"),
    ("lease", "ttl"),
    ("expire", "ttl"),
    ("semaphore", "permits"),
    ("limit", "permits"),
    ("read", "shared"),
    ("skip", "on_held"),
];

/// Word above a method that its `impl` block leaves without a lock. It is not an option: it cannot be combined with one.
pub(crate) const UNLOCKED: &str = "unlocked";

#[derive(Default)]
pub(crate) struct Options {
    pub(crate) wait: Option<Given<Wait>>,
    pub(crate) ttl: Option<Given<Duration>>,
    pub(crate) max_hold: Option<Given<Duration>>,
    pub(crate) min_hold: Option<Given<Duration>>,
    pub(crate) wait_until: Option<Expr>,
    pub(crate) when: Option<Expr>,
    pub(crate) detach: bool,
    pub(crate) reentrant: bool,
    pub(crate) on_held: OnHeld,
    pub(crate) on_lost: OnLost,
    pub(crate) release: Release,
    pub(crate) shared: bool,
    pub(crate) permits: Option<Given<u16>>,
    pub(crate) proof: Option<Proof>,
    pub(crate) map_err: Option<Expr>,
    pub(crate) on_error: Option<Expr>,
    pub(crate) locks: Option<Expr>,
    pub(crate) krate: Option<Path>,
}

impl Options {
    /// Reads the value of an option that has one; `write` is its example.
    pub(crate) fn value(&mut self, key: &str, write: &str, input: ParseStream<'_>) -> Result<()> {
        match key {
            "wait" => self.wait = Some(time(input, key, write, wait)?),
            "ttl" => self.ttl = Some(time(input, key, write, ttl)?),
            "max_hold" => self.max_hold = Some(time(input, key, write, max_hold)?),
            "min_hold" => self.min_hold = Some(time(input, key, write, min_hold)?),
            "wait_until" => self.wait_until = Some(expression(input, key, write)?),
            "when" => self.when = Some(expression(input, key, write)?),
            "on_lost" => self.on_lost = on_lost(&string(input, key, write)?)?,
            "on_held" => self.on_held = on_held(&string(input, key, write)?)?,
            "release" => self.release = release(&string(input, key, write)?)?,
            "permits" => self.permits = Some(permits(input, write)?),
            "proof" => self.proof = Some(proof(input, write)?),
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
            "min_hold" | "shared" if self.min_hold.is_some() && self.shared => Some(
                "a reader does not keep its lock after its release: remove `min_hold` or `shared`",
            ),
            "min_hold" | "max_hold"
                if literal(&self.min_hold)
                    .zip(literal(&self.max_hold))
                    .is_some_and(|(least, most)| least > most) =>
            {
                Some("`min_hold` is longer than `max_hold`; shorten it, or raise `max_hold`")
            }
            "when" | "proof" if self.when.is_some() && self.proof.is_some() => Some(
                "with `when` the body may run without a lock, so `proof` has nothing to prove; keep one, or branch in the caller",
            ),
            "wait" | "wait_until"
                if literal(&self.wait) == Some(&Wait::Once) && self.wait_until.is_some() =>
            {
                Some(
                    r#"`wait = "none"` does not wait, so there is nothing for `wait_until` to bound; keep one"#,
                )
            }
            _ => None,
        }
    }
}

/// Returns the value of an option if it is known at compile time.
pub(crate) fn literal<T>(value: &Option<Given<T>>) -> Option<&T> {
    value.as_ref().and_then(Given::literal)
}

/// Returns true if a method's option `own` takes the place of its `impl` block's `default`.
pub(crate) fn replaces(own: &str, default: &str) -> bool {
    let either = [["shared", "permits"], ["map_err", "on_error"]];
    own == default || either.iter().any(|pair| pair.contains(&own) && pair.contains(&default))
}

fn synonym(word: &str) -> Option<&'static str> {
    let found = SYNONYMS.iter().find(|(other, _)| *other == word);
    found.map(|(_, option)| *option)
}

fn words() -> impl Iterator<Item = &'static str> {
    OPTIONS.iter().map(|(word, _)| *word)
}

/// Returns the example of an option; `None` if there is no such option.
pub(crate) fn example(word: &str) -> Option<&'static str> {
    OPTIONS.iter().find(|(option, _)| *option == word).map(|(_, write)| *write)
}

/// Returns true if the word alone, without a value, is an option.
pub(crate) fn is_flag(word: &str) -> bool {
    OPTIONS.contains(&(word, word))
}

/// Words the error for an option with a missing or needless value.
pub(crate) fn miswritten(key: &str, write: &str) -> String {
    if key == write {
        format!("option `{key}` takes no value; write `{key}` alone")
    } else {
        format!("option `{key}` needs a value; write `{write}`")
    }
}

/// Words the error for a single word that is not a binding of the function; `None` unless it is probably meant as an option.
pub(crate) fn misplaced(word: &Ident) -> Option<String> {
    let key = word.to_string();
    if let Some(write) = example(&key) {
        return Some(miswritten(&key, write));
    }
    // Types and constants have uppercase letters.
    let lower = !key.contains(char::is_uppercase);
    let meant = synonym(&key).or_else(|| nearest(&key, words()));
    (lower && meant.is_some()).then(|| unknown(word, true))
}

/// Returns true if `word = …` is meant as the lock name.
pub(crate) fn is_name(word: &str) -> bool {
    word == "name" || word == "key"
}

/// Words the error for a word that is not an option; `alone` means without a value. The form that the error proposes compiles.
pub(crate) fn unknown(word: &Ident, alone: bool) -> String {
    let key = word.to_string();
    if let Some(write) = synonym(&key).and_then(example) {
        return format!("unknown option `{word}`; write `{write}`");
    }
    if is_name(&key) && !alone {
        return format!(
            "`{word}` is not an option; write the lock name first, without `{word} =`, such as `#[etcd_locked(\"orders/<id>\")]`"
        );
    }
    match nearest(&key, words()) {
        Some(near) if alone && !is_flag(near) => {
            let write = example(near).unwrap_or(near);
            format!("unknown option `{word}`; did you mean `{write}`?")
        }
        Some(near) if !alone && is_flag(near) => {
            format!("unknown option `{word}`; did you mean `{near}`, without a value?")
        }
        Some(near) => format!("unknown option `{word}`; did you mean `{near}`?"),
        None => format!(
            "unknown option `{word}`; the options are `{}`",
            words().collect::<Vec<_>>().join("`, `")
        ),
    }
}
