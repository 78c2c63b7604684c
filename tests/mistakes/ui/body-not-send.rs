use std::rc::Rc;

use etcd_locked::{LockError, etcd_locked};

async fn ship_all() {
    tokio::spawn(ship(1));
}

#[etcd_locked("orders/<id>")]
async fn ship(id: u64) -> Result<u64, LockError> {
    let counter = Rc::new(id);
    tokio::task::yield_now().await;
    Ok(*counter)
}

fn main() {}
