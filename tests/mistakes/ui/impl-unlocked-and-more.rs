use etcd_locked::{LockError, etcd_locked};

struct Account {
    id: u64,
}

#[etcd_locked("accounts/<self.id>")]
impl Account {
    async fn close(&self) -> Result<(), LockError> {
        Ok(())
    }

    #[etcd_locked(unlocked, wait = "1s")]
    fn id(&self) -> u64 {
        self.id
    }
}

fn main() {}
