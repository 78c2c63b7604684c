use etcd_locked::{LockError, etcd_locked};

struct Customer;

#[etcd_locked("customers/<customer>")]
async fn greet(customer: Customer) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
