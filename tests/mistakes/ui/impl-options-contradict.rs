use std::time::Instant;

use etcd_locked::{LockError, etcd_locked};

struct Account {
    id: u64,
}

#[etcd_locked("accounts/<self.id>", wait = "none", min_hold = "1s")]
impl Account {
    #[etcd_locked(wait_until = due)]
    async fn open(&self, due: Instant) -> Result<(), LockError> {
        Ok(())
    }

    #[etcd_locked(shared)]
    async fn audit(&self) -> Result<(), LockError> {
        Ok(())
    }
}

fn main() {}
