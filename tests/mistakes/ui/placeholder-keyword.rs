use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<type>")]
async fn ship(r#type: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
