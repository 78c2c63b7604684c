use etcd_locked::{LockError, etcd_locked};

trait Ship {
    #[etcd_locked("orders/<id>")]
    async fn ship(&self, id: u64) -> Result<(), LockError>;
}

fn main() {}
