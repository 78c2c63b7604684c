use etcd_locked::{LockError, etcd_locked};

#[etcd_locked(
    "orders/<id + 1>",
    "orders/<id: u64>",
    "orders/{id}",
    "orders/<_>",
    "orders/<type>",
    "orders/<Self>",
    "orders/<id.a²>",
    "orders/<id>-<line>",
    "orders/<id",
    "orders/id>",
    "orders/<>"
)]
async fn ship(id: u64, line: u32, _: u64, r#type: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
