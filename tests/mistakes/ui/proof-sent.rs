use std::sync::mpsc::Sender;

use etcd_locked::{LockError, Locked, Name, etcd_locked};

#[etcd_locked("orders/<id>", guard = order)]
async fn ship(id: u64, seen: Sender<&'static Locked<Name>>) -> Result<(), LockError> {
    let _ = seen.send(order);
    Ok(())
}

fn main() {}
