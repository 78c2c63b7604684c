use std::time::Instant;

use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>", map_err = |error| error, on_error = |error| Err(error), shared, permits = 5)]
async fn convert_and_share(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", proof = order, when = urgent, min_hold = "10s", max_hold = "5s")]
async fn prove_and_keep(id: u64, urgent: bool) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", wait_until = due, wait = "none")]
async fn wait(id: u64, due: Instant) -> Result<(), LockError> {
    Ok(())
}

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
