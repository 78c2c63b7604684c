use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id + 1>")]
async fn ship(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
