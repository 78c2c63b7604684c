use etcd_locked::{LockError, etcd_locked};

struct Shop;

impl Shop {
    #[etcd_locked("shops/<shard>/orders/<number>")]
    async fn ship(&self, id: u64, sku: &str) -> Result<(), LockError> {
        Ok(())
    }
}

#[etcd_locked("shops/<shard>")]
async fn close() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
