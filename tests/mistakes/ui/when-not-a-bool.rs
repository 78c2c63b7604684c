use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>", when = total)]
async fn ship(id: u64, total: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
