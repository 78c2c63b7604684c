use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>", wiat = "5s", retries = 5, reentrent, detahc = true)]
async fn misspelt(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", wiat)]
async fn option_alone(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked(ttl, "orders")]
async fn before_the_name() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
