use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id")]
async fn unclosed(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/id>")]
async fn stray(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<>")]
async fn empty(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
