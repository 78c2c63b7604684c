use etcd_locked::{LockError, etcd_locked};

struct Account {
    id: u64,
    balance: u64,
}

#[etcd_locked("accounts/<self.id>")]
impl Account {
    async fn debit(&mut self, amount: u64) -> Result<(), LockError> {
        self.balance -= amount;
        Ok(())
    }

    #[etcd_locked(unlcoked)]
    async fn id(&self) -> u64 {
        self.id
    }

    #[etcd_locked(unlock)]
    fn balance(&self) -> u64 {
        self.balance
    }
}

fn main() {}
