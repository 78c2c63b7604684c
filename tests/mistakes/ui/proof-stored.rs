use etcd_locked::{LockError, Locked, Name, etcd_locked};

#[etcd_locked("orders/<id>", guard = order)]
async fn ship<'a>(id: u64, seen: &mut Vec<&'a Locked<Name>>) -> Result<(), LockError> {
    seen.push(order);
    Ok(())
}

fn main() {}
