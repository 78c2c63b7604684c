use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("accounts/<from>")]
#[etcd_locked("accounts/<to>")]
async fn transfer(from: u64, to: u64) -> Result<(), LockError> {
    Ok(())
}

struct Account {
    id: u64,
}

#[etcd_locked("accounts/<self.id>")]
impl Account {
    #[etcd_locked("accounts/<to>")]
    #[etcd_locked(shared)]
    async fn transfer(&self, to: u64) -> Result<(), LockError> {
        Ok(())
    }
}

#[etcd_locked("accounts/<self.id>")]
#[etcd_locked("ledger")]
impl Account {
    async fn close(&self) -> Result<(), LockError> {
        Ok(())
    }
}

fn main() {}
