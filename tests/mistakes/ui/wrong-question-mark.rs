use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>")]
async fn ship(id: &str) -> Result<u64, LockError> {
    Ok(id.parse()?)
}

fn main() {}
