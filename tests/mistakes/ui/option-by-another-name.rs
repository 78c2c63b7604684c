use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>", timeout = "5s", lease = "30s")]
async fn ship(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked(key = "orders/<id>", limit = 5)]
async fn pack(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("reports", read)]
async fn report() -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("jobs/nightly", skip)]
async fn nightly() {}

fn main() {}
