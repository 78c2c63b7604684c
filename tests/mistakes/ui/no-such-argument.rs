use etcd_locked::{LockError, etcd_locked};

struct Shop;

impl Shop {
    #[etcd_locked("shops/<shard>/orders/<number>", "shops/<self>")]
    async fn ship(&self, id: u64, sku: &str) -> Result<(), LockError> {
        Ok(())
    }
}

#[etcd_locked("shops/<shard>")]
async fn close() -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("shops/<self.id>")]
async fn open(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
