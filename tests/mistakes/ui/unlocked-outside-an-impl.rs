use etcd_locked::{LockError, etcd_locked};

struct Account {
    id: u64,
}

impl Account {
    #[etcd_locked("accounts/<self.id>")]
    async fn close(&self) -> Result<(), LockError> {
        Ok(())
    }

    #[etcd_locked(unlocked)]
    fn id(&self) -> u64 {
        self.id
    }
}

#[etcd_locked(unlocked)]
impl Account {
    async fn open(&self) -> Result<(), LockError> {
        Ok(())
    }
}

fn main() {}
