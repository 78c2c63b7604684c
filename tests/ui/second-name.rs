use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>", "stock/<id>")]
async fn ship(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", format!("stock/{id}"))]
async fn count(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
