use etcd_locked::{LockError, etcd_locked};

#[tokio::main]
#[etcd_locked("orders")]
async fn main() -> Result<(), LockError> {
    Ok(())
}
