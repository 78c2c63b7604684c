use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("accounts/<from>", "accounts/<to>", guard = from)]
async fn transfer(from: u64, to: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", guard = (order, other))]
async fn ship(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
