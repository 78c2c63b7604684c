use etcd_locked::etcd_locked;

struct Account {
    id: u64,
}

#[etcd_locked("accounts/<self.id>")]
impl Account {
    fn new(id: u64) -> Self {
        Account { id }
    }

    #[etcd_locked(unlocked)]
    fn id(&self) -> u64 {
        self.id
    }
}

fn main() {}
