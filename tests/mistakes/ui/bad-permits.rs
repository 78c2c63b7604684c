use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("smtp/<region>", permits = 0)]
async fn none(region: &str) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("smtp/<region>", permits = -1)]
async fn negative(region: &str) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("smtp/<region>", permits = "5")]
async fn text(region: &str) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("smtp/<region>", permits = 3u8)]
async fn of_another_type(region: &str) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
