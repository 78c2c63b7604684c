use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>", deadline = std::time::Duration::from_secs(5))]
async fn ship(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
