//! Lock sites of a crate that a test target links, for the list of templates.
#![forbid(unsafe_code)]

use etcd_locked::{LockError, LockKey, etcd_locked};

/// A function, so that something of this file is referred to: never the sites themselves.
#[must_use]
pub fn linked() -> &'static str {
    "elsewhere"
}

/// Listed although nothing calls it.
///
/// # Errors
/// Those of the lock.
#[etcd_locked("elsewhere/<id>")]
pub async fn function(id: u64) -> Result<(), LockError> {
    Ok(())
}

/// Listed although it is never instantiated.
///
/// # Errors
/// Those of the lock.
#[etcd_locked("elsewhere/generic/<key>")]
pub async fn generic<T: LockKey>(key: T) -> Result<(), LockError> {
    Ok(())
}
