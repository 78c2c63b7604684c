use etcd_locked::{LockError, etcd_locked};

const NAME: &str = "orders";

#[etcd_locked(NAME)]
async fn constant() -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked(format!("orders/{id}"), wait = "5s")]
async fn ship(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
