use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("reports/<day>", shared, permits = 5)]
async fn read(day: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
