use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<_>")]
async fn ship(_: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
