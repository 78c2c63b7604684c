use std::sync::Arc;

use etcd_locked::{LockError, etcd_locked};

struct Shop {
    shard: u8,
}

impl Shop {
    #[etcd_locked("shops/<self.shard>/<sku>", detach)]
    async fn sell(&self, sku: &str, count: u32) -> Result<(), LockError> {
        Ok(())
    }
}

#[etcd_locked("shops/<self.shard>", detach)]
impl Shop {
    async fn open(self: Arc<Self>) -> Result<(), LockError> {
        Ok(())
    }

    async fn close(&self) -> Result<(), LockError> {
        Ok(())
    }
}

fn main() {}
