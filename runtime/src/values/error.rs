//! Errors of locks, as callers receive them.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use super::{Cycle, Holder, LossCause, Name, getters, is_permanent};

/// The reason why a lock was not taken, or not kept.
///
/// `Display` shows the template of a name and never its values, which may be personal data. It shows the text of a run-time name only
/// with [`show_names`](crate::Config::show_names). It also shows hosts and processes, so print it to logs, and not to clients of a public
/// service. For [`Backend`](Self::Backend) and [`PermissionDenied`](Self::PermissionDenied), `source()` says what failed: print the whole
/// chain, for example with anyhow's `{:#}`. `Debug` shows whole names.
///
/// # As an answer
///
/// With the features `axum` (`IntoResponse`), `actix` (`ResponseError`) and `tonic` (`From<LockError> for Status`), handlers that return
/// `axum::response::Result<_>`, `actix_web::Result<_>` or `Result<_, tonic::Status>` need no other error type. If you have one, pass the
/// variant on: `Self::Lock(error) => error.into_response()`, `error.error_response()` or `error.into()`. Clients receive what happened
/// and the template, and nothing else. The response carries the error itself, for a layer that logs. A `LOCK_FAULT` is also logged as a
/// `tracing` error.
///
#[doc = include_str!("../../docs/answers.md")]
#[non_exhaustive]
#[derive(Debug, Clone, thiserror::Error)]
#[allow(missing_docs)] // fields whose names say everything
pub enum LockError {
    /// No endpoint of etcd is configured; or an `init` was dropped and not called again; or this process was forked from one that had
    /// connected to etcd. Fork before the first lock, or let the new process `exec` a program. The locks of the parent stay untouched.
    #[error("etcd-locked is not initialised: {reason}")]
    #[non_exhaustive]
    NotInitialized { reason: String },

    /// [`init`](crate::init) was called after another `init` had succeeded, while another one was connecting, or after the first lock had
    /// started the process's engine from the environment.
    #[error("etcd-locked is initialised already: call `init` once, before the first lock")]
    AlreadyInitialized,

    /// The configuration is wrong. The message says what is wrong.
    #[error("bad configuration: {message}")]
    #[non_exhaustive]
    Config { message: String },

    /// The name was taken, and the call tried only once (`wait = "none"`).
    #[error("lock `{name}` is held{}{}", said(" by ", .holder), stuck(.unleased))]
    #[non_exhaustive]
    Held {
        name: Name,
        holder: Option<Holder>,
        /// The key that blocks the call, if it has no lease and so never expires. Delete it once its owner is known to be gone. Only
        /// `Debug` shows it, because it contains values of the name.
        unleased: Option<Arc<str>>,
    },

    /// The lock was not free within the wait, or before the deadline.
    #[error("lock `{name}` {}{}{}", not_free(.waited), said(": it is held by ", .holder), stuck(.unleased))]
    #[non_exhaustive]
    Timeout {
        name: Name,
        /// The holder at the end of the wait, if known.
        holder: Option<Holder>,
        /// The key that blocks the call, if it has no lease; see [`Held`](Self::Held).
        unleased: Option<Arc<str>>,
        /// How long the call queued; zero if its deadline had already passed.
        waited: Duration,
    },

    /// The lock was lost while the body ran. The body was dropped at its next await point and will not be polled again, so half of its
    /// work may be done. From `fenced` or [`confirm`](crate::FenceSql::confirm) it means: the transaction was rolled back, or you must
    /// roll it back.
    ///
    /// Not retryable: only the caller knows what may be done twice. Two kinds of bodies are safe to repeat: those that skip what is
    /// already done (idempotent), and those whose whole effect is one transaction, [fenced](crate::Locked::fence_sql) if a paused holder
    /// must not commit late. [`detach`](crate::options#detach) a body that a dropped caller must not cut in half; a loss still ends it.
    #[error("lock `{name}` was lost: {cause}")]
    #[non_exhaustive]
    Lost { name: Name, cause: LossCause },

    /// The body ran longer than its hold limit (`max_hold`). It was dropped at an await point, then its lock was released. Half of its
    /// work may be done. Not retryable, for the same reason as [`Lost`](Self::Lost), and because it may take too long again.
    #[error("the body under lock `{name}` exceeded `max_hold` ({limit:?}) and was dropped")]
    #[non_exhaustive]
    HoldLimit { name: Name, limit: Duration },

    /// The calling task already holds this lock, so it would wait for itself forever. With [`reentrant`](crate::Acquire::reentrant) the
    /// lock is reused, unless the call also names locks that the task does not hold.
    #[error("lock `{name}` is held by this task: take it once, or use `reentrant` for all names")]
    #[non_exhaustive]
    SelfDeadlock { name: Name },

    /// The calling task holds a lock that others wait for, and they hold the lock that it requested: a cycle. One call of the cycle is
    /// refused, and this is the one. The others continue.
    ///
    /// Release what the task holds (return the error through the outer body), then try again from the start. To avoid it, take all locks
    /// in one call, or take them everywhere in the same order.
    ///
    /// A cycle inside the process is refused at once. A cycle across processes is refused after two to five seconds, if it still exists
    /// at that moment. Only locks held around bodies count ([`LockGuard::hold`](crate::LockGuard::hold), annotated functions), of one
    /// engine and in the same task.
    #[error("lock `{name}` was refused to end a deadlock: {cycle}")]
    #[non_exhaustive]
    Deadlock { name: Name, cycle: Cycle },

    /// Only under test (feature `testing`): two functions take two locks in opposite order. Two tasks that do so at once end in a
    /// [`Deadlock`](Self::Deadlock). Outside tests this is a `tracing` warning, once for each pair. Names are compared by their
    /// templates.
    #[error(
        "`{here}` takes lock `{name}` under `{held}`, and `{there}` takes them in the opposite order, so they can deadlock: \
             take both in one call, or everywhere in one order"
    )]
    #[non_exhaustive]
    OrderInversion {
        name: Name,
        held: Box<Name>,
        /// The calling function; `lock()` for a call by hand.
        here: &'static str,
        /// The function that took them in the other order.
        there: &'static str,
    },

    /// The number of waiting calls in this process has reached [`Config::max_waiters`](crate::Config::max_waiters).
    #[error("lock `{name}` was refused: `max_waiters` calls already wait in this process")]
    #[non_exhaustive]
    Overloaded { name: Name },

    /// [`shutdown`](crate::shutdown) has begun, or the `init` for which the call waited has failed. The body has not begun. A body that
    /// outlasts the grace of a shutdown ends with [`Lost`](Self::Lost).
    #[error("etcd-locked is shutting down and grants no new locks")]
    ShuttingDown,

    /// The runtime or engine that ran the call has ended: the caller's tokio runtime, for a body of `detach` or in `fenced`; or the engine, by a
    /// panic, which is our bug. Unlike [`ShuttingDown`](Self::ShuttingDown), this is not an orderly end. Half of the work may be done.
    #[error("{what}")]
    #[non_exhaustive]
    RuntimeEnded { what: &'static str },

    /// The name cannot be locked.
    #[error("lock name `{name}` is invalid: {reason}")]
    #[non_exhaustive]
    InvalidName { name: Name, reason: String },

    /// The etcd user lacks permission for the key.
    #[error("etcd denies permission for {}", what(.name))]
    #[non_exhaustive]
    PermissionDenied {
        /// The lock, of several names the first, because etcd does not say which; `None` for the session keys next to the prefix.
        name: Option<Name>,
        source: Arc<dyn Error + Send + Sync>,
    },

    /// etcd could not be reached, or refused the request. The source says which endpoint, and why.
    #[error("etcd failed")]
    #[non_exhaustive]
    Backend { source: Arc<dyn Error + Send + Sync> },
}

impl LockError {
    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::Config { message: message.into() }
    }

    /// Returns how a wait ended, in one word for metrics and spans.
    pub(crate) fn outcome(refused: Option<&Self>) -> &'static str {
        match refused {
            None => "granted",
            Some(Self::Held { .. }) => "held",
            Some(Self::Timeout { .. }) => "timeout",
            Some(Self::Deadlock { .. }) => "deadlock",
            Some(_) => "failed",
        }
    }

    getters! { self:
        /// Returns true if the same call may succeed later and its body has not begun: another call had the lock, or etcd failed. After a
        /// [`Deadlock`](Self::Deadlock), first release what is held. A [`Backend`](Self::Backend) error is not retryable if an operator
        /// has to change something: a refused password or certificate, a wrong scheme, endpoints of two clusters.
        is_retryable: bool = match self {
            Self::Held { .. }
            | Self::Timeout { .. }
            | Self::Deadlock { .. }
            | Self::Overloaded { .. } => true,
            Self::Backend { source } => !is_permanent(&**source),
            _ => false,
        };
        /// Returns true for [`Held`](Self::Held) and [`Timeout`](Self::Timeout): another call had the lock. `on_held = "skip"` skips these.
        is_held: bool = matches!(self, Self::Held { .. } | Self::Timeout { .. });
        /// Returns the lock concerned, of several names the one that was unavailable; `None` if the error concerns all locks.
        name: Option<&Name> = match self {
            Self::Held { name, .. }
            | Self::Timeout { name, .. }
            | Self::Lost { name, .. }
            | Self::HoldLimit { name, .. }
            | Self::SelfDeadlock { name }
            | Self::Deadlock { name, .. }
            | Self::OrderInversion { name, .. }
            | Self::Overloaded { name }
            | Self::InvalidName { name, .. } => Some(name),
            Self::PermissionDenied { name, .. } => name.as_ref(),
            _ => None,
        };
        /// Returns the holder, for [`Held`](Self::Held) and [`Timeout`](Self::Timeout), if it is known.
        holder: Option<&Holder> = match self {
            Self::Held { holder, .. } | Self::Timeout { holder, .. } => holder.as_ref(),
            _ => None,
        };
    }
}

fn said(before: &str, holder: &Option<Holder>) -> String {
    holder.as_ref().map(|holder| format!("{before}{holder}")).unwrap_or_default()
}

fn not_free(waited: &Duration) -> String {
    match waited.is_zero() {
        true => "was not requested: the deadline has passed".to_owned(),
        false => format!("was not free within {waited:.1?}"),
    }
}

fn stuck(unleased: &Option<Arc<str>>) -> &'static str {
    match unleased {
        Some(_) => {
            "; its key has no lease and will never expire: make sure that its owner is gone, then delete the key"
        }
        None => "",
    }
}

fn what(name: &Option<Name>) -> String {
    match name {
        Some(name) => format!("lock `{name}`"),
        None => "the session keys next to the prefix".to_owned(),
    }
}
