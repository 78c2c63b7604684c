//! Outcome of an annotated call: the body's result, or the value that stands for a lock error.

use crate::values::{LockError, chain};

/// Return type of an annotated function that can carry a lock error.
#[diagnostic::on_unimplemented(
    message = "an annotated function must be able to return a lock error, but `{Self}` is not a `Result<_, E>` with `E: From<LockError>`",
    label = "cannot carry a `LockError`",
    note = "return a `Result<_, E>` where `E: From<etcd_locked::LockError>`, or convert with `map_err = f`",
    note = "an error type of axum, actix-web or tonic works with the feature `axum`, `actix` or `tonic` of etcd-locked",
    note = "for any other type say what to return with `on_error = f`, or `on_held = \"skip\"` where `()` or `Option` will do"
)]
pub trait Outcome: Sized {
    fn from_lock_error(error: LockError) -> Self;
}

#[diagnostic::do_not_recommend] // else rustc mentions only `From`
impl<T, E: From<LockError>> Outcome for Result<T, E> {
    fn from_lock_error(error: LockError) -> Self {
        Err(error.into())
    }
}

pub fn finish<R: Outcome>(result: Result<R, LockError>) -> R {
    result.unwrap_or_else(R::from_lock_error)
}

/// Return type of an annotated function with `on_held = "skip"`, with its value for "skipped".
#[diagnostic::on_unimplemented(
    message = "`on_held = \"skip\"` needs a function that can return without a value, and this one returns `{Self}`",
    label = "has no value for \"skipped\"",
    note = "return `()`, `Option<T>`, or a `Result` of those"
)]
pub trait Skipped: Sized {
    fn skipped() -> Self;
}

impl Skipped for () {
    fn skipped() -> Self {}
}

impl<T> Skipped for Option<T> {
    fn skipped() -> Self {
        None
    }
}

impl<S: Skipped, E> Skipped for Result<S, E> {
    fn skipped() -> Self {
        Ok(S::skipped())
    }
}

/// Return type of an annotated function with `on_held = "skip"` and without `map_err` or `on_error`.
#[diagnostic::on_unimplemented(
    message = "`on_held = \"skip\"` needs a function that can return without a value, and this one returns `{Self}`",
    label = "has no value for \"skipped\"",
    note = "return `()`, `Option<T>`, or a `Result` of those whose error is `From<etcd_locked::LockError>`"
)]
pub trait Skip: Skipped {
    /// Returns the value for an error other than that the lock was held.
    fn failed(error: LockError) -> Self;
}

impl Skip for () {
    fn failed(error: LockError) -> Self {
        report(&error);
    }
}

impl<T> Skip for Option<T> {
    fn failed(error: LockError) -> Self {
        report(&error);
        None
    }
}

impl<S: Skipped, E: From<LockError>> Skip for Result<S, E> {
    fn failed(error: LockError) -> Self {
        Err(error.into())
    }
}

/// Logs the error, because the function's type cannot carry it.
fn report(error: &LockError) {
    let error = chain(error);
    tracing::error!(
        code = "lock.skipped",
        error,
        "an annotated function was skipped or cut off because its lock failed"
    );
}

pub fn skip<R: Skip>(result: Result<R, LockError>) -> R {
    skip_held(result).unwrap_or_else(R::failed)
}

/// Turns "held" into the skipped value, and leaves other errors to `map_err` or `on_error`.
pub fn skip_held<R: Skipped>(result: Result<R, LockError>) -> Result<R, LockError> {
    match result {
        Err(error) if error.is_held() => Ok(R::skipped()),
        result => result,
    }
}

/// Return type of an annotated function with `map_err`, with its error type.
#[diagnostic::on_unimplemented(
    message = "`map_err` needs a function that returns a `Result`, and this one returns `{Self}`",
    label = "not a `Result`",
    note = "convert with `on_error = f` instead"
)]
pub trait Fallible {
    type Error;
    fn failed(error: Self::Error) -> Self;
}

impl<T, E> Fallible for Result<T, E> {
    type Error = E;
    fn failed(error: E) -> Self {
        Err(error)
    }
}

pub fn map_err<R: Fallible>(
    result: Result<R, LockError>,
    f: impl FnOnce(LockError) -> R::Error,
) -> R {
    result.unwrap_or_else(|error| R::failed(f(error)))
}

pub fn on_error<R>(result: Result<R, LockError>, f: impl FnOnce(LockError) -> R) -> R {
    result.unwrap_or_else(f)
}
