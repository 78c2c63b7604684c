use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>-<line>")]
async fn ship(id: u64, line: u32) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
