use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("smtp/<region>", permits = 0)]
async fn send(region: &str) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
