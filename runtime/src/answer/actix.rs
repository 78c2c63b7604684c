//! actix-web: a `LockError` as a response.

use actix_web::body::BoxBody;
use actix_web::http::{StatusCode, header};
use actix_web::{HttpResponse, ResponseError};

use crate::answer::{Answer, Row};
use crate::values::LockError;

/// Feature `actix`. Status, `Retry-After` and text are those of the table on [`LockError`]'s page. actix-web keeps the error with the
/// response, for middleware that logs: `response.error()`. At debug level, its own `Logger` prints the error by `Debug`, which includes
/// the values in names.
impl ResponseError for LockError {
    fn status_code(&self) -> StatusCode {
        // Never fails: the table contains only valid status codes.
        StatusCode::from_u16(Row::of(self).http).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    fn error_response(&self) -> HttpResponse<BoxBody> {
        let Answer { row, text } = Answer::to(self);
        let mut response = HttpResponse::build(self.status_code());
        response.content_type(header::ContentType::plaintext());
        if let Some(seconds) = row.retry_after {
            response.insert_header((header::RETRY_AFTER, seconds.to_string()));
        }
        response.body(text)
    }
}
