use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>", wait = "5s", crate = ::locked_by_etcd)]
async fn ship(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
