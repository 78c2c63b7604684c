use etcd_locked::{LockError, Locked, etcd_locked, lock_names};

lock_names! {
    pub Order = "orders/<id: u64>";
    pub Account = "accounts/<id: u64>";
}

async fn charge(order: &Locked<Order>) -> Result<(), LockError> {
    println!("{}", order.token());
    Ok(())
}

#[etcd_locked(Account { id }, guard = account)]
async fn close(id: u64) -> Result<(), LockError> {
    charge(account).await
}

fn main() {}
