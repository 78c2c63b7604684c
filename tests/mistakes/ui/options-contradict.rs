use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>", map_err = |error| error, on_error = |error| Err(error))]
async fn converted_twice(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", shared, permits = 5)]
async fn shared_by_some(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", proof = order, when = urgent)]
async fn proof_of_nothing(id: u64, urgent: bool) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", wait_until = due, wait = "none")]
async fn bounded_twice(id: u64, due: std::time::Instant) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", min_hold = "10s", max_hold = "5s")]
async fn kept_longer_than_held(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
