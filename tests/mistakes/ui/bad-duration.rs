use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>", wait = "5 seconds", ttl = "1.5m")]
async fn ship(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
