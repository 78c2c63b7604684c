use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>", wait = "none", deadline = due)]
async fn ship(id: u64, due: std::time::Instant) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
