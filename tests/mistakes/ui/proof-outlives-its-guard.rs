use etcd_locked::{LockError, lock};

async fn ship() -> Result<(), LockError> {
    let held = lock("orders/7").await?;
    let order = held.locked();
    held.release().await?;
    println!("{}", order.token());
    Ok(())
}

fn main() {}
