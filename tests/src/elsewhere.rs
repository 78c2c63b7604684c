//! Lock sites of another crate that a test target links, for the list of templates.
#![forbid(unsafe_code)]

use etcd_locked::{LockError, LockKey, etcd_locked};

/// Makes the linker keep this file without a reference to the lock sites themselves.
#[must_use]
pub fn linked() -> &'static str {
    "elsewhere"
}

/// Lock site that is listed although nothing calls it.
///
/// # Errors
/// Those of the lock.
#[etcd_locked("elsewhere/<id>")]
pub async fn function(id: u64) -> Result<(), LockError> {
    Ok(())
}

/// Lock site that is listed although it is never instantiated.
///
/// # Errors
/// Those of the lock.
#[etcd_locked("elsewhere/generic/<key>")]
pub async fn generic<T: LockKey>(key: T) -> Result<(), LockError> {
    Ok(())
}
