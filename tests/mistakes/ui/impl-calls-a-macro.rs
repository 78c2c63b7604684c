use etcd_locked::{LockError, etcd_locked};

macro_rules! closing {
    () => {
        async fn close(&self) -> Result<u64, LockError> {
            Ok(self.id)
        }
    };
}

struct Account {
    id: u64,
}

#[etcd_locked("accounts/<self.id>")]
impl Account {
    closing!();

    async fn open(&self) -> Result<(), LockError> {
        Ok(())
    }
}

fn main() {}
