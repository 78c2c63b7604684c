use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<self.id>")]
struct Order {
    id: u64,
}

#[etcd_locked("orders/<id>")]
trait Ship {
    async fn ship(&self, id: u64) -> Result<(), LockError>;
}

fn main() {}
