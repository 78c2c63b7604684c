use etcd_locked::{LockError, Locked, etcd_locked, lock_names};

lock_names! {
    pub Order = "orders/<id: u64>";
}

async fn charge(order: &Locked<Order>) -> Result<(), LockError> {
    println!("{}", order.token());
    Ok(())
}

#[etcd_locked(Order { id }, proof = order)]
async fn ship(id: u64) -> Result<u64, LockError> {
    Ok(order.name().id)
}

async fn ship_and_charge(id: u64) -> Result<(), LockError> {
    ship(id).await?;
    charge(order).await
}

fn main() {}
