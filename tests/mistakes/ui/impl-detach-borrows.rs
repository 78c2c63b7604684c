use std::sync::Arc;

use etcd_locked::{LockError, etcd_locked};

struct Account {
    id: u64,
}

#[etcd_locked("accounts/<self.id>", detach)]
impl Account {
    async fn open(self: Arc<Self>) -> Result<(), LockError> {
        Ok(())
    }

    async fn close(&self) -> Result<(), LockError> {
        Ok(())
    }
}

fn main() {}
