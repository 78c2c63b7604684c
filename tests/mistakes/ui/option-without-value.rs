use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>", wait, on_held =)]
async fn ship(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
