use etcd_locked::{LockError, etcd_locked};

#[etcd_locked(id)]
async fn ship(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked(("orders", id))]
async fn count(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
