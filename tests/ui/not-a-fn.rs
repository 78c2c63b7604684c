use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<self.id>")]
struct Order {
    id: u64,
}

#[etcd_locked("orders/<self.id>")]
impl Order {
    async fn ship(&self) -> Result<(), LockError> {
        let _ = self.id;
        Ok(())
    }
}

fn main() {}
