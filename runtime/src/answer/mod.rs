//! Answers of a service to its clients for a [`LockError`]: one table for all frameworks.
//!
//! A client receives less than the log: no host, process or endpoint, and of a name only the template. `docs/answers.md` shows the table,
//! with the reason for each row.

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
    /// First word of the text, for programs.
    reason: &'static str,
    http: u16,
    grpc: Code,
    /// Seconds after which the same request may be worth another try.
    retry_after: Option<u8>,
    /// True if half of the work may be done, so only the caller knows whether it may be done again.
    half_done: bool,
    /// Text after the lock's name, or the whole text if there is no name.
    says: &'static str,
}

/// Reason of errors that last until an operator fixes the service, whatever the client requests.
const FAULT: &str = "LOCK_FAULT";

impl Row {
    fn of(error: &LockError) -> Self {
        let (reason, http, grpc, retry_after, says) = match error {
            LockError::Held { .. } => ("LOCK_HELD", 423, Code::Aborted, None, "is held"),
            LockError::Timeout { .. } => {
                ("LOCK_TIMEOUT", 423, Code::Aborted, None, "was not free in time")
            }
            LockError::Lost { .. } => {
                let says = "was lost during the request, part of which may be done";
                ("LOCK_LOST", 500, Code::Aborted, None, says)
            }
            LockError::HoldLimit { .. } => {
                let says = "reached its hold limit, and part of the request may be done";
                ("LOCK_HOLD_LIMIT", 500, Code::Aborted, None, says)
            }
            LockError::Deadlock { .. } => {
                let says = "was refused to end a deadlock";
                ("LOCK_DEADLOCK", 503, Code::Aborted, Some(1), says)
            }
            LockError::Overloaded { .. } => {
                let says = "was refused because too many requests wait";
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
                (FAULT, 500, Code::Internal, None, "failed: see the server's log")
            }
        };
        use LockError::{HoldLimit, Lost, RuntimeEnded};
        let half_done = matches!(error, Lost { .. } | HoldLimit { .. } | RuntimeEnded { .. });
        Self { reason, http, grpc, retry_after, half_done, says }
    }
}

/// Response for an error, before it is put into a framework's form.
struct Answer {
    row: Row,
    /// Body or message.
    text: String,
}

impl Answer {
    /// Builds the response. Logs errors that an operator has to fix, because the client does not receive them.
    fn to(error: &LockError) -> Self {
        let row = Row::of(error);
        if row.reason == FAULT {
            let error = chain(error);
            tracing::error!(
                code = "request.failed",
                error,
                "a request failed because its lock could not be used: see the error"
            );
        } else if let LockError::Backend { .. } = error {
            // The engine logs one warning for all of them.
            tracing::debug!(error = chain(error), "a request was refused because etcd failed");
        }
        let Row { reason, says, .. } = row;
        let text = match error.name() {
            // `show_names` is for operators only.
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
