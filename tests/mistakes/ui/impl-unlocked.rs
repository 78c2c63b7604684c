use etcd_locked::{LockError, etcd_locked};

struct Account {
    id: u64,
}

#[etcd_locked("accounts/<self.id>")]
impl Account {
    async fn close(&mut self) -> Result<(), LockError> {
        Ok(())
    }

    fn forgotten(&self) -> u64 {
        self.id
    }

    const fn new(id: u64) -> Self {
        Account { id }
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

#[etcd_locked("accounts/<self.id>")]
impl Account {
    fn nothing_to_lock(id: u64) -> Self {
        Account { id }
    }

    #[etcd_locked(unlocked)]
    fn id(&self) -> u64 {
        self.id
    }
}

impl Account {
    #[etcd_locked("accounts/<self.id>")]
    async fn open(&self) -> Result<(), LockError> {
        Ok(())
    }

    #[etcd_locked(unlocked)]
    fn outside(&self) {}
}

#[etcd_locked(unlocked)]
impl Account {
    async fn audit(&self) -> Result<(), LockError> {
        Ok(())
    }
}

fn main() {}
