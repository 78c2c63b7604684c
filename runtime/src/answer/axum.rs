//! axum, and frameworks that use its responses: a `LockError` as a response.

use axum_core::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};

use crate::answer::Answer;
use crate::values::LockError;

/// Feature `axum`. Status, `Retry-After` and text are those of the table on [`LockError`]'s page. The response carries the error as an
/// extension, for a layer that logs: `response.extensions().get::<LockError>()`.
impl IntoResponse for LockError {
    fn into_response(self) -> Response {
        let Answer { row, text } = Answer::to(&self);
        let mut response = text.into_response();
        // Never fails: the table contains only valid status codes.
        *response.status_mut() =
            StatusCode::from_u16(row.http).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if let Some(seconds) = row.retry_after {
            let seconds = HeaderValue::from(u16::from(seconds));
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        response.extensions_mut().insert(self);
        response
    }
}
