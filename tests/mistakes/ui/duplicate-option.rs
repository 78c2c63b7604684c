use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>", wait = "5s", ttl = "30s", wait = "none")]
async fn ship(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
