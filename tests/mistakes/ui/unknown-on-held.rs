use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>", on_held = "wait")]
async fn ship(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
