//! Errors of locks, as callers get them.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use super::{Cycle, Holder, LossCause, Name, getters, is_permanent};

/// Why a lock was not taken, or not kept.
///
/// `Display` shows a name's template and never its values, which may be personal data; a run-time name's text only with
/// [`show_names`](crate::Config::show_names). It shows hosts and processes too, so it is for logs, not for clients of a public service.
/// It leaves out what `source()` says, of [`Backend`](Self::Backend) and [`PermissionDenied`](Self::PermissionDenied): print the chain, such
/// as by anyhow's `{:#}`. `Debug` shows whole names.
///
/// # As an answer
///
/// With the features `axum` (`IntoResponse`), `actix` (`ResponseError`) and `tonic` (`From<LockError> for Status`), handlers that return
/// `axum::response::Result<_>`, `actix_web::Result<_>` or `Result<_, tonic::Status>` need no error type of their own. In an error type of
/// your own, pass the variant on: `Self::Lock(error) => error.into_response()`, `error.error_response()`, `error.into()`. Clients get what
/// happened and the template, and nothing else. Every error is kept with its answer, for a layer that logs; `LOCK_FAULT` is a `tracing`
/// error event too.
///
#[doc = include_str!("../../docs/answers.md")]
#[non_exhaustive]
#[derive(Debug, Clone, thiserror::Error)]
#[allow(missing_docs)] // of fields whose names say all
pub enum LockError {
    /// Nothing says where etcd is; or an `init` was dropped, and not called again; or this process was forked from one that had connected to
    /// etcd. What a fork drops leaves the locks of its parent alone. Fork before the first lock, or let the new process `exec` a program.
    #[error("etcd-locked is not initialised: {reason}")]
    #[non_exhaustive]
    NotInitialized { reason: String },

    /// [`init`](crate::init) was called while another one connects, after one that succeeded, or after the first lock had started the
    /// process's engine from the environment.
    #[error("etcd-locked is initialised already: call `init` once, before the first lock")]
    AlreadyInitialized,

    /// The configuration cannot work.
    #[error("bad configuration: {message}")]
    #[non_exhaustive]
    Config { message: String },

    /// One try (`wait = "none"`), and the name was taken.
    #[error("lock `{name}` is held{}{}", said(" by ", .holder), stuck(.unleased))]
    #[non_exhaustive]
    Held {
        name: Name,
        holder: Option<Holder>,
        /// The key in the way, if it hangs on no lease: it never expires. Delete it once its owner is known to be gone. Only `Debug` shows
        /// it, because values of the name are in it.
        unleased: Option<Arc<str>>,
    },

    /// The lock was not to be had within the wait, or before the deadline.
    #[error("lock `{name}` {}{}{}", not_free(.waited), said(": it is held by ", .holder), stuck(.unleased))]
    #[non_exhaustive]
    Timeout {
        name: Name,
        /// Who had it when the wait was over, if that is known.
        holder: Option<Holder>,
        /// The key in the way, if it hangs on no lease, as in [`Held`](Self::Held).
        unleased: Option<Arc<str>>,
        /// How long the call queued; zero if its deadline had passed before.
        waited: Duration,
    },

    /// The lock was lost while the body ran: the body was dropped at its next await point and will not be polled again, so half of its work
    /// may be done. As the answer of `fenced` or of [`confirm`](crate::FenceSql::confirm): the transaction was rolled back, or is to be.
    ///
    /// Not retryable: only the caller knows what may be done twice. Safe to repeat are a body that finds what is done already and leaves it
    /// out (idempotent), and one whose whole effect is a transaction, [fenced](crate::Locked::fence_sql) where a paused holder must not commit
    /// late. A body that must not be cut in half by a dropped caller is [`detach`](crate::options#detach)ed; a loss ends it all the same.
    #[error("lock `{name}` was lost: {cause}")]
    #[non_exhaustive]
    Lost { name: Name, cause: LossCause },

    /// The body did not end within its hold limit (`max_hold`): it was dropped at an await point, then its lock was released. Half of its
    /// work may be done. Not retryable, for the reason at [`Lost`](Self::Lost), and because what took too long once may do so again.
    #[error("the body under lock `{name}` did not end within its hold limit of {limit:?}")]
    #[non_exhaustive]
    HoldLimit { name: Name, limit: Duration },

    /// The calling task holds this very lock: waiting for it would never end. With
    /// [`reentrant`](crate::Acquire::reentrant) it is used again, unless the call names others too that the task does not hold.
    #[error("lock `{name}` is held by this very task, which would wait for itself")]
    #[non_exhaustive]
    SelfDeadlock { name: Name },

    /// The calling task holds a lock that others wait for, and they hold what it asked for: a cycle. One call of it is refused, and this
    /// is the one; the others go on.
    ///
    /// Let go of what is held (return the error through the outer body), then try again from the start. To avoid it, take all locks in one
    /// call, or take them everywhere in the same order.
    ///
    /// A cycle inside the process is refused at once; one across processes after two to five seconds, and only if all of it was still
    /// there in the moment of the refusal. Only what is held by way of bodies counts
    /// ([`LockGuard::hold`](crate::LockGuard::hold), annotated functions), of one engine and in the same task.
    #[error("lock `{name}` is part of a deadlock: {cycle}")]
    #[non_exhaustive]
    Deadlock { name: Name, cycle: Cycle },

    /// Only under test (feature `testing`): two functions take two locks in opposite order. Two tasks that do so at once are a
    /// [`Deadlock`](Self::Deadlock). Outside tests this is a `tracing` warning, once for each pair. Names count by their templates.
    #[error(
        "lock `{name}` is asked for under `{held}` in `{here}`, and the other way round in `{there}`: these can wait for each \
             other; take both in one call, or everywhere in one order"
    )]
    #[non_exhaustive]
    OrderInversion {
        name: Name,
        held: Box<Name>,
        /// The function that asked; `lock()`, if it was called by hand.
        here: &'static str,
        /// The one that took them in the other order before.
        there: &'static str,
    },

    /// As many calls wait in this process as [`Config::max_waiters`](crate::Config::max_waiters) allows.
    #[error(
        "lock `{name}` was not queued for: as many calls wait in this process as `max_waiters` lets"
    )]
    #[non_exhaustive]
    Overloaded { name: Name },

    /// [`shutdown`](crate::shutdown) has begun, or the `init` that the call waited with has failed; the body has not begun. A body that
    /// outlasts the grace ends by [`Lost`](Self::Lost).
    #[error("etcd-locked is shutting down: no new locks")]
    ShuttingDown,

    /// What ran the call has ended before it: the caller's tokio runtime, with a body of `detach` or in `fenced`; or the engine, by a panic,
    /// which is a bug of ours. Unlike [`ShuttingDown`](Self::ShuttingDown) it belongs to no orderly end. Half of the work may be done.
    #[error("{what}")]
    #[non_exhaustive]
    RuntimeEnded { what: &'static str },

    /// The name cannot be locked.
    #[error("lock name `{name}` is invalid: {reason}")]
    #[non_exhaustive]
    InvalidName { name: Name, reason: String },

    /// etcd's user may not use the key.
    #[error("etcd denies permission for {}", what(.name))]
    #[non_exhaustive]
    PermissionDenied {
        /// The lock, of several names the first, as etcd does not say which; `None`: the session keys next to the prefix.
        name: Option<Name>,
        source: Arc<dyn Error + Send + Sync>,
    },

    /// etcd could not be reached, or refused; the source says which endpoint, and why.
    #[error("etcd failed")]
    #[non_exhaustive]
    Backend { source: Arc<dyn Error + Send + Sync> },
}

impl LockError {
    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::Config { message: message.into() }
    }

    /// How a wait ended, in one word for metrics and spans.
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
        /// Whether the same call may succeed later, and its body has not begun: another call had the lock, or etcd failed. In a
        /// [`Deadlock`](Self::Deadlock), let go of what is held first. A [`Backend`](Self::Backend) is not retryable if an operator has to
        /// change something first: a password or a certificate that is refused, a wrong scheme, endpoints of two clusters.
        is_retryable: bool = match self {
            Self::Held { .. }
            | Self::Timeout { .. }
            | Self::Deadlock { .. }
            | Self::Overloaded { .. } => true,
            Self::Backend { source } => !is_permanent(&**source),
            _ => false,
        };
        /// Whether another call had the lock, [`Held`](Self::Held) or [`Timeout`](Self::Timeout): what `on_held = "skip"` skips.
        is_held: bool = matches!(self, Self::Held { .. } | Self::Timeout { .. });
        /// The lock that it is about, of several names the one that could not be had; `None` where it is about all locks.
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
        /// Who has the lock, of [`Held`](Self::Held) and [`Timeout`](Self::Timeout), if that is known.
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
        true => "was not asked for: the deadline has passed".to_owned(),
        false => format!("was not free within {waited:.1?}"),
    }
}

fn stuck(unleased: &Option<Arc<str>>) -> &'static str {
    match unleased {
        Some(_) => {
            "; the key in the way has no lease and will never expire: an operator has to delete it"
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
