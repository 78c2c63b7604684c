use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>", on_held = "wait")]
async fn held(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", on_lost = "ignore")]
async fn lost(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", release = "later")]
async fn released(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
