use etcd_locked::{LockError, etcd_locked};

etcd_locked::lock_names! {
    pub Order = "orders/<id: u64>";
}

#[etcd_locked(Ordr { id })]
async fn ship(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked(nmae)]
async fn count(name: &str) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
