use std::time::Instant;

use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>", deadline = due)]
async fn deadline(id: u64, due: Instant) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", at_most = "5s")]
async fn at_most(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", at_least = "5s")]
async fn at_least(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", guard = order)]
async fn guard(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
