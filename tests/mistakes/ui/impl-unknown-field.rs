use etcd_locked::{LockError, etcd_locked};

struct Account {
    id: u64,
}

#[etcd_locked("accounts/<self.idd>")]
impl Account {
    async fn open(&self) -> Result<(), LockError> {
        Ok(())
    }

    async fn close(&self) -> Result<u64, LockError> {
        Ok(self.id)
    }
}

fn main() {}
