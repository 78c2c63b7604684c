//! For tonic.

use std::sync::Arc;

use ::tonic::Status;

use crate::answer::Answer;
use crate::error::LockError;

/// What gRPC clients with a retry policy go by: when the server wants the next try, in milliseconds.
const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// Feature `tonic`. Code and message are those of the table on [`LockError`]'s page, and its `Retry-After` is the metadata
/// `grpc-retry-pushback-ms`. The error itself stays in the server, as the status's `source()`, for a layer that logs.
impl From<LockError> for Status {
    fn from(error: LockError) -> Self {
        let Answer { row, text } = Answer::to(&error);
        let mut status = Self::new(row.grpc, text);
        if let Some(seconds) = row.retry_after {
            let pushback = u32::from(seconds) * 1000;
            status.metadata_mut().insert(PUSHBACK, pushback.into());
        }
        status.set_source(Arc::new(error));
        status
    }
}
