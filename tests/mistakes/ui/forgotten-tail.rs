use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>")]
async fn ship(id: u64) -> Result<u64, LockError> {
    Ok(id);
}

fn main() {}
