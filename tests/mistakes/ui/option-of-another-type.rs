use std::time::Duration;

use etcd_locked::{LockError, etcd_locked};

#[derive(Debug)]
enum AppError {
    Busy(LockError),
}

#[etcd_locked("orders/<id>", wait = timeout)]
async fn waits(id: u64, timeout: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", max_hold = Some(Duration::from_secs(5)))]
async fn held(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("smtp/<region>", permits = limit)]
async fn sends(region: &str, limit: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", wait_until = Duration::from_secs(5))]
async fn bounded(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", when = total)]
async fn asks(id: u64, total: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", locks = "mine")]
async fn elsewhere(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", map_err = |error| error.to_string())]
async fn mapped(id: u64) -> Result<(), AppError> {
    Ok(())
}

#[etcd_locked("orders/<id>", on_error = |error| error)]
async fn converted(id: u64) -> String {
    String::new()
}

fn main() {}
