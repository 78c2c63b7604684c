use std::time::Instant;

use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>", timeout = "5s", lease = "30s", limit = 5, read, skip)]
async fn ship(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked(key = "orders/<id>")]
async fn pack(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", deadline = due, at_most = "5s", at_least = "5s", guard = order)]
async fn old_names(id: u64, due: Instant) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
