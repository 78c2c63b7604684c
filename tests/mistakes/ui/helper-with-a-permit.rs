use etcd_locked::{LockError, Locked, etcd_locked, lock_names};

lock_names! {
    pub Order = "orders/<id: u64>";
}

async fn charge(order: &Locked<Order>) -> Result<(), LockError> {
    println!("{}", order.token());
    Ok(())
}

#[etcd_locked(Order { id }, guard = order, permits = 5)]
async fn send(id: u64) -> Result<(), LockError> {
    charge(order).await
}

fn main() {}
