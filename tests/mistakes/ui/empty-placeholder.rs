use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<>")]
async fn ship(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
