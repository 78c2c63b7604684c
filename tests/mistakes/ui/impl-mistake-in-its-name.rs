use etcd_locked::{LockError, etcd_locked};

struct Account {
    id: u64,
}

#[etcd_locked("accounts/<self.id", wiat = "5s")]
impl Account {
    async fn open(&self) -> Result<(), LockError> {
        Ok(())
    }

    #[etcd_locked(shared)]
    async fn close(&self) -> Result<u64, LockError> {
        Ok(self.id)
    }
}

fn main() {}
