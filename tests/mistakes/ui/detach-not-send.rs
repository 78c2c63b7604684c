use std::rc::Rc;

use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>", detach)]
async fn ship(id: u64) -> Result<(), LockError> {
    let label = Rc::new(id);
    std::future::ready(()).await;
    drop(label);
    Ok(())
}

fn main() {}
