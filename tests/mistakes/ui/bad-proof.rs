use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>", proof = "order")]
async fn text(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("accounts/<from>", "accounts/<to>", proof = (account, account))]
async fn twice(from: u64, to: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("accounts/<from>", "accounts/<to>", proof = from)]
async fn too_few(from: u64, to: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", proof = (order, other))]
async fn too_many(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
