use etcd_locked::{LockError, etcd_locked};

struct Orders;

#[etcd_locked("orders/<region>/<id>")]
impl Orders {
    async fn ship(&self, region: &str, id: u64) -> Result<(), LockError> {
        Ok(())
    }

    async fn count(&self, order: u64) -> Result<u64, LockError> {
        Ok(0)
    }
}

fn main() {}
