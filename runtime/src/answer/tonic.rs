//! tonic: a `LockError` as a `Status`.

use std::fmt;
use std::sync::Arc;

use ::tonic::Status;

use crate::answer::Answer;
use crate::values::LockError;

/// Metadata by which a server tells clients with a retry policy when to retry, in milliseconds.
const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// Feature `tonic`. Code and message are those of the table on [`LockError`]'s page. Its `Retry-After` becomes the metadata
/// `grpc-retry-pushback-ms`, which is -1 if half of the work may be done. The error itself stays in the server, for a layer that logs: it
/// is the source of the status's `source()`. The status prints that source, which therefore says no more than the message.
impl From<LockError> for Status {
    fn from(error: LockError) -> Self {
        let Answer { row, text } = Answer::to(&error);
        let mut status = Self::new(row.grpc, text.clone());
        let forbidden = row.half_done.then_some(-1); // also for clients whose policy allows retries
        if let Some(pushback) = row.retry_after.map(|s| i32::from(s) * 1000).or(forbidden) {
            status.metadata_mut().insert(PUSHBACK, pushback.into());
        }
        status.set_source(Arc::new(Origin { text, error }));
        status
    }
}

/// Source of a status. tonic prints it with the status, also in `Display`, so it says no more than the message.
#[derive(thiserror::Error)]
#[error("{text}")]
struct Origin {
    text: String,
    #[source]
    error: LockError,
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
