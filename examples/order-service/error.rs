//! Errors of a purchase, and their answers over HTTP.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use etcd_locked::{LockError, etcd_client};

/// The reason why there is no receipt.
#[derive(Debug)]
pub(crate) enum AppError {
    SoldOut,
    UnknownArticle,
    /// The lock was refused, or lost during the body.
    Lock(LockError),
    Store(etcd_client::Error),
}

/// The only conversion that `#[etcd_locked]` needs of an error type.
impl From<LockError> for AppError {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl From<etcd_client::Error> for AppError {
    fn from(error: etcd_client::Error) -> Self {
        Self::Store(error)
    }
}

impl IntoResponse for AppError {
    fn into_response(self) -> Response {
        match self {
            Self::SoldOut => (StatusCode::CONFLICT, "sold out").into_response(),
            Self::UnknownArticle => (StatusCode::NOT_FOUND, "no such article").into_response(),
            Self::Lock(LockError::InvalidName { .. }) => {
                (StatusCode::BAD_REQUEST, "no such article").into_response()
            }
            Self::Lock(error) if error.is_retryable() => {
                (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], "busy, try again")
                    .into_response()
            }
            Self::Lock(error) => {
                // It names hosts, endpoints and articles, so it is for the log, not for the customer.
                eprintln!("{error:?}");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
            Self::Store(error) => {
                eprintln!("{error}");
                StatusCode::BAD_GATEWAY.into_response()
            }
        }
    }
}
