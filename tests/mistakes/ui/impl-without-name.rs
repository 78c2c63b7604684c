use etcd_locked::{LockError, etcd_locked};

struct Account {
    id: u64,
}

#[etcd_locked(wait = "5s")]
impl Account {
    async fn open(&self) -> Result<(), LockError> {
        Ok(())
    }

    async fn close(&self) -> Result<(), LockError> {
        Ok(())
    }

    #[etcd_locked("accounts/<self.id>/audit")]
    async fn audit(&self) -> Result<(), LockError> {
        Ok(())
    }
}

fn main() {}
