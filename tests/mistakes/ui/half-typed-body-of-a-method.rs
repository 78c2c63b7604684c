use etcd_locked::{LockError, etcd_locked};

struct Account {
    id: u64,
}

#[etcd_locked("accounts/<self.id>")]
impl Account {
    async fn half(&self) -> Result<u64, LockError> {
        let closed = self.;
        let id: u32 = self.id;
        Ok(self.id)
    }

    async fn whole(&self) -> Result<(), LockError> {
        let id: u32 = self.id;
        Ok(())
    }
}

fn main() {}
