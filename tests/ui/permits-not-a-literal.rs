use etcd_locked::{LockError, etcd_locked};

const LIMIT: u16 = 5;

#[etcd_locked("smtp/<region>", permits = LIMIT)]
async fn send(region: &str) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("smtp/<region>", permits = "5")]
async fn receive(region: &str) -> Result<(), LockError> {
    Ok(())
}

fn main() {
    let _ = LIMIT;
}
