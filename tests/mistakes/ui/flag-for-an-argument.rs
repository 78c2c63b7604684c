use etcd_locked::{LockError, etcd_locked};

#[etcd_locked(detach)]
async fn ship(detach: String) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
