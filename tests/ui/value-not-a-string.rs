use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>", wait = std::time::Duration::from_secs(5), ttl = 30)]
async fn ship(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
