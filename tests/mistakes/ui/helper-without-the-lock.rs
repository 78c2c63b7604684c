use etcd_locked::{LockError, Locked, etcd_locked, lock_names};

lock_names! {
    pub Order = "orders/<id: u64>";
    pub Account = "accounts/<id: u64>";
}

async fn charge(order: &Locked<Order>) -> Result<(), LockError> {
    println!("{}", order.token());
    Ok(())
}

#[etcd_locked("jobs/nightly")]
async fn without() -> Result<(), LockError> {
    charge().await
}

#[etcd_locked(Account { id }, proof = account)]
async fn under_another_lock(id: u64) -> Result<(), LockError> {
    charge(account).await
}

#[etcd_locked("orders/<id>", proof = order)]
async fn under_a_template(id: u64) -> Result<(), LockError> {
    charge(order).await
}

#[etcd_locked(Order { id }, proof = order, shared)]
async fn as_a_reader(id: u64) -> Result<(), LockError> {
    charge(order).await
}

#[etcd_locked(Order { id }, proof = order, permits = 5)]
async fn with_a_permit(id: u64) -> Result<(), LockError> {
    charge(order).await
}

fn main() {}
