use etcd_locked::{LockError, etcd_locked};

#[etcd_locked(wait = "5s", "orders/<id>")]
async fn ship(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
