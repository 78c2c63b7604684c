use etcd_locked::{LockError, etcd_locked};

struct Customer;

#[etcd_locked("customers/<customer>/<ids>/<pair>/<unit>")]
async fn greet(
    customer: Customer,
    ids: Vec<u64>,
    pair: (u64, u64),
    unit: (),
) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked(id)]
async fn number(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked(("orders", id))]
async fn tuple(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
