//! Errors of a purchase, and the HTTP response for each.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use etcd_locked::{LockError, etcd_client};

/// Reason why a customer gets no receipt.
#[derive(Debug)]
pub(crate) enum AppError {
    SoldOut,
    UnknownArticle,
    /// The lock was refused, or lost while the body ran.
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
            // The feature `axum` makes the response: 423 after a timeout, 500 `LOCK_LOST` if the lock was lost, …
            Self::Lock(error) => error.into_response(),
            Self::Store(error) => {
                eprintln!("{error}");
                StatusCode::BAD_GATEWAY.into_response()
            }
        }
    }
}
