use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("")]
async fn ship(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
