use etcd_locked::{LockError, etcd_locked};

etcd_locked::lock_names! {
    pub Order = "orders/<id: u64>/<sku: &str>";
    pub Line = "lines/<id: LineId>";
}

#[etcd_locked(Order { id })]
async fn without_sku(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked(Order { id, sku })]
async fn with_text(id: String, sku: &str) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked(Order { idd: id, sku })]
async fn misspelt(id: u64, sku: &str) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
