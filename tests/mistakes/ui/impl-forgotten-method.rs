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

    fn balance(&self) -> u64 {
        self.balance
    }

    const fn new(id: u64) -> Self {
        Account { id, balance: 0 }
    }
}

fn main() {}
