use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("reports/<day>", at_least = "10s", at_most = "5s")]
async fn report(day: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("reports", at_least = "0s")]
async fn summary() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
