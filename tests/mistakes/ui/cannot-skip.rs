use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>", on_held = "skip")]
async fn ship(id: u64) -> Result<String, LockError> {
    Ok(String::new())
}

fn main() {}
