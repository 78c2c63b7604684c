use etcd_locked::{LockError, Locked, Name, etcd_locked};

#[etcd_locked("orders/<id>", proof = order)]
async fn ship(id: u64) -> Result<(), LockError> {
    let kept: Locked<Name> = order.clone();
    println!("{}", kept.token());
    Ok(())
}

fn main() {}
