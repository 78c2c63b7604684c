use etcd_locked::{LockError, etcd_locked};

struct Customer;

#[etcd_locked("customers/<customer>/<discount>")]
async fn greet(customer: Customer, discount: f64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
