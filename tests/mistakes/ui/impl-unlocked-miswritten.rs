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
    fn with_an_option(&self) {}

    #[etcd_locked(unlcoked)]
    async fn misspelt(&self) {}

    #[etcd_locked(unlock)]
    fn shortened(&self) {}

    #[etcd_locked = "unlocked"]
    fn assigned(&self) {}
}

fn main() {}
