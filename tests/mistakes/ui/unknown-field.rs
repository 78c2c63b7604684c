use etcd_locked::{LockError, etcd_locked};

struct Order {
    id: u64,
}

#[etcd_locked("orders/<order.idd>")]
async fn ship(order: Order) -> Result<u64, LockError> {
    Ok(order.id)
}

#[etcd_locked("smtp/<order.id>", permits = order.limit)]
async fn send(order: &Order) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
