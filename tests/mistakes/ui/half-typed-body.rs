use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>")]
async fn field(id: u64, shop: String) -> Result<(), LockError> {
    let open = shop.;
    let counted: u32 = shop;
    Ok(())
}

#[etcd_locked("orders/<id>")]
async fn statement(id: u64, shop: String) -> Result<(), LockError> {
    let = shop.len();
    let counted: u32 = shop;
    Ok(())
}

fn main() {}
