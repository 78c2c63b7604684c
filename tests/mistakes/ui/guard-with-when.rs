use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>", guard = order, when = urgent)]
async fn ship(id: u64, urgent: bool) -> Result<i64, LockError> {
    Ok(order.token().as_i64())
}

fn main() {}
