use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>", wiat)]
async fn ship(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked(ttl, "orders")]
async fn count() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
