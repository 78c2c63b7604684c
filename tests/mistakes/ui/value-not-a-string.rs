use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>", wait = 5m, ttl = 30, on_held = true)]
async fn ship(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", wait = none)]
async fn cancel(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
