use etcd_locked::{LockError, etcd_locked};

struct Config {
    limit: u16,
}

#[etcd_locked("smtp/<region>", permits = config.limits)]
async fn send(config: &Config, region: &str) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
