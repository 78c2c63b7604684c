use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>", at_most = "0s")]
async fn ship(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
