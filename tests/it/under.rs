//! Helpers for bodies under their locks: the engine they run on, the name they see, the error they return.

use std::future::Future;

use etcd_locked::{LockError, Locks, current};

use crate::corner::Corner;
use crate::limit::{run, within};

/// Returns the lock name under which the calling body runs.
pub(crate) fn name() -> String {
    let lock = current().expect("the body runs under its lock");
    assert!(lock.is_held());
    lock.name().text().expect("held, hence valid").to_owned()
}

/// Runs calls in the scope of a new engine, and checks that they leave no key.
pub(crate) fn alone(calls: impl Future<Output = ()>) {
    with_locks(async |locks| locks.scope(calls).await);
}

/// Runs calls that get a new engine as an argument, and checks that they leave no key.
pub(crate) fn with_locks(calls: impl AsyncFnOnce(&Locks)) {
    run(async {
        let (corner, [locks]) = Corner::with_engines().await;
        within("the calls", calls(&locks)).await;
        corner.until_empty().await;
    });
}

/// Error of an application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AppError(pub(crate) String);

impl From<LockError> for AppError {
    fn from(error: LockError) -> Self {
        Self(error.to_string())
    }
}

impl axum::response::IntoResponse for AppError {
    fn into_response(self) -> axum::response::Response {
        axum::response::IntoResponse::into_response((axum::http::StatusCode::LOCKED, self.0))
    }
}

impl std::fmt::Display for AppError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
