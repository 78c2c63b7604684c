use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>", wiat = "5s")]
async fn option(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", retries = 5)]
async fn unknown(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", reentrent)]
async fn flag(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", detahc = true)]
async fn flag_with_value(id: u64) -> Result<(), LockError> {
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
