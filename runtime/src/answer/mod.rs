//! Answers of a service to its clients for a [`LockError`]: one table, which every framework's answer is made from.
//!
//! A client gets less than the log: no host, no process, no endpoint, and of a name the template only. `docs/answers.md` shows the
//! table, with the reason for each row.

#[cfg(feature = "actix")]
mod actix;
#[cfg(feature = "axum")]
mod axum;
#[cfg(feature = "tonic")]
mod tonic;

use ::tonic::Code;

use crate::values::{LockError, RUN_TIME, chain};

/// One row of the table.
#[derive(Debug)]
#[allow(dead_code)] // each framework reads its own part; the page's test all of it
struct Row {
    /// The first word of the text, for programs.
    reason: &'static str,
    http: u16,
    grpc: Code,
    /// When the same request may be worth another try, in seconds.
    retry_after: Option<u8>,
    /// Half of the work may be done, so nothing but the caller knows whether it may be done again.
    half_done: bool,
    /// What is said of the lock, or, where there is none, altogether.
    says: &'static str,
}

/// Whatever the client asks, it will be so until an operator mends the service.
const FAULT: &str = "LOCK_FAULT";

impl Row {
    fn of(error: &LockError) -> Self {
        let (reason, http, grpc, retry_after, says) = match error {
            LockError::Held { .. } => ("LOCK_HELD", 423, Code::Aborted, None, "is held"),
            LockError::Timeout { .. } => {
                ("LOCK_TIMEOUT", 423, Code::Aborted, None, "was not free in time")
            }
            LockError::Lost { .. } => {
                let says = "was lost while the request was served, part of which may be done";
                ("LOCK_LOST", 500, Code::Aborted, None, says)
            }
            LockError::HoldLimit { .. } => {
                let says = "was held for as long as it may be, and part of the request may be done";
                ("LOCK_HOLD_LIMIT", 500, Code::Aborted, None, says)
            }
            LockError::Deadlock { .. } => {
                let says = "could not be had without a deadlock";
                ("LOCK_DEADLOCK", 503, Code::Aborted, Some(1), says)
            }
            LockError::Overloaded { .. } => {
                let says = "was not queued for, as too many requests wait";
                ("LOCK_OVERLOADED", 503, Code::ResourceExhausted, Some(1), says)
            }
            LockError::ShuttingDown => {
                let says = "the server is shutting down";
                ("LOCK_SHUTTING_DOWN", 503, Code::Unavailable, Some(1), says)
            }
            LockError::Backend { .. } if error.is_retryable() => {
                let says = "the lock service cannot be reached";
                ("LOCK_BACKEND", 503, Code::Unavailable, Some(5), says)
            }
            LockError::InvalidName { .. } => {
                let says = "cannot have this value in its name";
                ("LOCK_INVALID_NAME", 400, Code::InvalidArgument, None, says)
            }
            LockError::Backend { .. }
            | LockError::NotInitialized { .. }
            | LockError::AlreadyInitialized
            | LockError::Config { .. }
            | LockError::SelfDeadlock { .. }
            | LockError::OrderInversion { .. }
            | LockError::RuntimeEnded { .. }
            | LockError::PermissionDenied { .. } => {
                (FAULT, 500, Code::Internal, None, "failed for a reason that is in the log")
            }
        };
        use LockError::{HoldLimit, Lost, RuntimeEnded};
        let half_done = matches!(error, Lost { .. } | HoldLimit { .. } | RuntimeEnded { .. });
        Self { reason, http, grpc, retry_after, half_done, says }
    }
}

/// What a client gets for an error, in every framework's words.
struct Answer {
    row: Row,
    /// Body, or message.
    text: String,
}

impl Answer {
    /// Logs what the client does not get and an operator has to mend.
    fn to(error: &LockError) -> Self {
        let row = Row::of(error);
        if row.reason == FAULT {
            let error = chain(error);
            tracing::error!(
                code = "request.failed",
                error,
                "a request failed: its lock could not be used"
            );
        } else if let LockError::Backend { .. } = error {
            // The engine has one warning for all of them.
            tracing::debug!(error = chain(error), "a request was refused: etcd does not serve it");
        }
        let Row { reason, says, .. } = row;
        let text = match error.name() {
            // `show_names` is for operators.
            Some(name) => {
                format!("{reason}: lock `{}` {says}", name.template().unwrap_or(RUN_TIME))
            }
            None if reason == FAULT => format!("{reason}: the request {says}"),
            None => format!("{reason}: {says}"),
        };
        Self { row, text }
    }
}

#[cfg(test)]
mod tests;
