use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("prices/<price>")]
async fn quote(price: f64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
