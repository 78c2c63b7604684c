use etcd_locked::{LockError, etcd_locked};

struct Config {
    limit: u64,
    seconds: u64,
}

#[etcd_locked("smtp/<region>", permits = config.limit)]
async fn send(config: &Config, region: &str) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", wait = timeout)]
async fn ship(id: u64, timeout: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", at_most = Some(config.seconds))]
async fn pack(config: &Config, id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
