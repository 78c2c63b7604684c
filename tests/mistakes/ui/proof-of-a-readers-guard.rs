use etcd_locked::{LockError, Locked, Name, lock};

async fn charge(_order: &Locked<Name>) {}

async fn ship() -> Result<(), LockError> {
    let held = lock("orders/7").shared().await?;
    charge(held.locked()).await;
    held.release().await
}

fn main() {}
