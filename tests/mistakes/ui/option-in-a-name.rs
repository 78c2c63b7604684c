use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("customers/<customer>")]
async fn greet(customer: Option<u64>) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
