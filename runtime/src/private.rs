//! What expansions of `#[etcd_locked]` call. Not for use by hand: it changes with every version.

use std::future::{Future, IntoFuture};
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::sync::oneshot;

pub use crate::site::{Site, Wait};

use crate::error::LockError;
use crate::held::{Body, Guard, Held};
use crate::locks::{Acquire, Acquiring, Locks};
use crate::name::{LockKey, LockName, Name};
pub use etcd_locked_macros::lock_names;

/// Fills a template.
#[must_use]
pub fn name(template: &'static str, values: &[&dyn LockKey]) -> Name {
    Name::render(template, values)
}

/// The name a user's expression stands for.
#[must_use]
pub fn name_of(name: &dyn LockName) -> Name {
    name.lock_name()
}

/// A lock on the engine of the scope, thread or process.
pub fn lock(names: &[Name], site: &'static Site) -> Lock {
    Lock::new(None, names, site)
}

/// A lock on an engine of one's own.
pub fn lock_on(locks: &Locks, names: &[Name], site: &'static Site) -> Lock {
    Lock::new(Some(locks.clone()), names, site)
}

/// The lock of one annotated call. One pointer, because it lives in the user's future.
#[derive(Debug)]
pub struct Lock(Box<State>);

#[derive(Debug)]
struct State {
    phase: Phase,
    /// `release = "background"`.
    lingers: bool,
}

#[derive(Debug)]
enum Phase {
    Acquiring(Acquiring),
    Holding { guard: Guard, held: Held },
    Releasing(oneshot::Receiver<Result<(), LockError>>),
    Done,
}

impl Lock {
    #[inline(never)]
    fn new(locks: Option<Locks>, names: &[Name], site: &'static Site) -> Self {
        let acquire = Acquire::new(locks, names.to_vec(), Some(site));
        Self(Box::new(State {
            phase: Phase::Acquiring(acquire.into_future()),
            lingers: false,
        }))
    }

    /// `release = "background"`.
    #[must_use]
    pub fn released_in_background(mut self) -> Self {
        self.0.lingers = true;
        self
    }

    /// Acquires, runs the body, drops it in place, releases.
    pub fn hold<'a, F: Future>(&'a mut self, body: Pin<&'a mut Option<F>>) -> Hold<'a, F> {
        Hold {
            lock: self,
            body,
            output: None,
        }
    }

    /// One poll of an annotated call.
    #[inline(never)]
    fn run<T>(
        &mut self,
        mut body: Pin<&mut (dyn Body<T> + '_)>,
        output: &mut Option<Box<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<T, LockError>> {
        if output.is_none() {
            let polled = match ready!(self.acquired(cx)) {
                Ok(guard) => ready!(guard.poll(body.as_mut(), cx)),
                Err(error) => Err(error),
            };
            match polled {
                Ok(done) => *output = Some(Box::new(done)),
                Err(error) => {
                    body.end();
                    self.abandon();
                    return Poll::Ready(Err(error));
                }
            }
        }
        ready!(self.released(cx));
        match output.take() {
            Some(output) => Poll::Ready(Ok(*output)),
            None => Poll::Pending,
        }
    }

    /// Waits for the lock; then the body may be polled under the guard.
    #[inline(never)]
    fn acquired(&mut self, cx: &mut Context<'_>) -> Poll<Result<&mut Guard, LockError>> {
        if let Phase::Acquiring(acquiring) = &mut self.0.phase {
            let held = ready!(Pin::new(acquiring).poll(cx));
            self.0.phase = Phase::Done;
            let held = held?;
            self.0.phase = Phase::Holding {
                guard: Guard::new(&held),
                held,
            };
        }
        match &mut self.0.phase {
            Phase::Holding { guard, .. } => Poll::Ready(Ok(guard)),
            _ => Poll::Pending, // polled after it was done
        }
    }

    /// The body is gone: releases, and waits for the confirmation if it is to.
    #[inline(never)]
    fn released(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Phase::Holding { .. } = &self.0.phase
            && let Phase::Holding { guard, held } = mem::replace(&mut self.0.phase, Phase::Done)
        {
            drop(guard); // before the key goes (invariant I11): it listens for that, and would wake this very task
            if self.0.lingers {
                held.let_go();
            } else if let Some(confirmation) = held.begin_release() {
                self.0.phase = Phase::Releasing(confirmation);
            }
        }
        if let Phase::Releasing(confirmation) = &mut self.0.phase {
            // A release that fails is the engine's to finish; the body's result stands (invariant I10).
            let _ = ready!(Pin::new(confirmation).poll(cx));
            self.0.phase = Phase::Done;
        }
        Poll::Ready(())
    }

    /// The body is gone because the lock is: the key, if it is still there, goes in the background.
    #[inline(never)]
    fn abandon(&mut self) {
        self.0.phase = Phase::Done;
    }
}

/// An annotated call being awaited.
pub struct Hold<'a, F: Future> {
    lock: &'a mut Lock,
    body: Pin<&'a mut Option<F>>,
    /// The body's result while the release is under way; boxed, so that the user's future does not grow by it.
    output: Option<Box<F::Output>>,
}

impl<F: Future> std::fmt::Debug for Hold<'_, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hold")
            .field("lock", &self.lock)
            .finish_non_exhaustive()
    }
}

impl<F: Future> Future for Hold<'_, F> {
    type Output = Result<F::Output, LockError>;

    // Compiled once for every annotated function: nothing but the way to what is not.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        this.lock.run(this.body.as_mut(), &mut this.output, cx)
    }
}

/// What an annotated function answers when the lock fails.
#[diagnostic::on_unimplemented(
    message = "an annotated function must be able to answer that its lock failed, and `{Self}` is no `Result<_, E>` with `E: From<LockError>`",
    label = "cannot carry a `LockError`",
    note = "return a `Result<_, E>` where `E: From<etcd_locked::LockError>`, or convert with `map_err = f`",
    note = "for any other type say what to return with `on_error = f`, or `on_held = \"skip\"` where `()` or `Option` will do"
)]
pub trait Outcome: Sized {
    /// The answer in this case.
    fn from_lock_error(error: LockError) -> Self;
}

#[diagnostic::do_not_recommend] // else rustc speaks of `From` alone
impl<T, E: From<LockError>> Outcome for Result<T, E> {
    fn from_lock_error(error: LockError) -> Self {
        Err(error.into())
    }
}

/// The result of the body, or what stands for the error.
pub fn finish<R: Outcome>(result: Result<R, LockError>) -> R {
    result.unwrap_or_else(R::from_lock_error)
}

/// What an annotated function with `on_held = "skip"` answers when it has not run.
#[diagnostic::on_unimplemented(
    message = "`on_held = \"skip\"` needs a function that can return without a value, and this one returns `{Self}`",
    label = "has no value for \"skipped\"",
    note = "return `()`, `Option<T>`, or a `Result` of those"
)]
pub trait Skipped: Sized {
    /// The answer of a function that was skipped.
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

/// The whole answer of an annotated function with `on_held = "skip"`.
#[diagnostic::on_unimplemented(
    message = "`on_held = \"skip\"` needs a function that can return without a value, and this one returns `{Self}`",
    label = "has no value for \"skipped\"",
    note = "return `()`, `Option<T>`, or a `Result` of those whose error is `From<etcd_locked::LockError>`"
)]
pub trait Skip: Skipped {
    /// The answer to a failure other than that the name was held.
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

/// The type cannot carry the error, so the log does.
fn report(error: &LockError) {
    tracing::error!(%error, "an annotated function was not run to its end: its lock failed");
}

/// The result of the body, or nothing if the name was held.
pub fn skip<R: Skip>(result: Result<R, LockError>) -> R {
    skip_held(result).unwrap_or_else(R::failed)
}

/// Turns "held" into the skipped answer and leaves other failures to `map_err` or `on_error`.
///
/// # Errors
/// All but [`LockError::Held`] and [`LockError::Timeout`].
pub fn skip_held<R: Skipped>(result: Result<R, LockError>) -> Result<R, LockError> {
    match result {
        Err(error) if error.is_held() => Ok(R::skipped()),
        result => result,
    }
}

/// What an annotated function with `map_err` answers: it has an error to map to.
#[diagnostic::on_unimplemented(
    message = "`map_err` needs a function that returns a `Result`, and this one returns `{Self}`",
    label = "is no `Result`",
    note = "convert with `on_error = f` instead"
)]
pub trait Fallible {
    /// Its error.
    type Error;

    /// The answer that carries an error.
    fn failed(error: Self::Error) -> Self;
}

impl<T, E> Fallible for Result<T, E> {
    type Error = E;

    fn failed(error: E) -> Self {
        Err(error)
    }
}

/// `map_err = f`.
pub fn map_err<R: Fallible>(
    result: Result<R, LockError>,
    f: impl FnOnce(LockError) -> R::Error,
) -> R {
    result.unwrap_or_else(|error| R::failed(f(error)))
}

/// `on_error = f`.
pub fn on_error<R>(result: Result<R, LockError>, f: impl FnOnce(LockError) -> R) -> R {
    result.unwrap_or_else(f)
}
