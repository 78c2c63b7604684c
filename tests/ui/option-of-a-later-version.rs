use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("reports/<day>", shared)]
async fn read(day: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("smtp", permits = 5)]
async fn send() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
