use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("/orders/<id>")]
async fn leading(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>/")]
async fn trailing(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders//<id>")]
async fn doubled(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
