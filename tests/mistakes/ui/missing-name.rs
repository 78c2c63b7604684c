use etcd_locked::{LockError, etcd_locked};

#[etcd_locked]
async fn ship(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked(wait = "5s")]
async fn queued() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
