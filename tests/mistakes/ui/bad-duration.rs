use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>", wait = "5 seconds", ttl = "1.5m", max_hold = "5")]
async fn unreadable(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", wait = "0s", ttl = "1s", max_hold = "0s")]
async fn too_short(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", wait = "9999h", ttl = "301s", max_hold = "9999h")]
async fn too_long(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", min_hold = "0s")]
async fn kept_for_nothing(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", min_hold = "9999h")]
async fn kept_too_long(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
