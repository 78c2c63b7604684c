use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>", release = "later")]
async fn ship(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
