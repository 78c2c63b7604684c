use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<ids>")]
async fn ship(ids: Vec<u64>) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<pair>/<unit>")]
async fn count(pair: (u64, u64), unit: ()) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
