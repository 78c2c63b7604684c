use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("smtp/<region>", permits = "5")]
async fn send(region: &str) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("smtp/<region>", permits = 3u8)]
async fn receive(region: &str) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
