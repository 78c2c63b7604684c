use etcd_locked::{LockError, Locked, Name, etcd_locked};

#[etcd_locked("orders/<id>", guard = order)]
async fn ship(id: u64) -> Result<&'static Locked<Name>, LockError> {
    Ok(order)
}

fn main() {}
