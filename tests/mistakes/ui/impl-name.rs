use etcd_locked::{LockError, etcd_locked};

struct Account {
    id: u64,
}

#[etcd_locked("accounts/<self.id", wiat = "5s")]
impl Account {
    async fn open(&self) -> Result<(), LockError> {
        Ok(())
    }

    #[etcd_locked(shared)]
    async fn close(&self) -> Result<u64, LockError> {
        Ok(self.id)
    }
}

#[etcd_locked("accounts/<self.idd>")]
impl Account {
    async fn unknown_field(&self) -> Result<(), LockError> {
        Ok(())
    }

    async fn again(&self) -> Result<u64, LockError> {
        Ok(self.id)
    }
}

#[etcd_locked("orders/<region>/<id>")]
impl Account {
    async fn ship(&self, region: &str, id: u64) -> Result<(), LockError> {
        Ok(())
    }

    async fn without_the_arguments(&self, order: u64) -> Result<u64, LockError> {
        Ok(0)
    }
}

#[etcd_locked(wait = "5s")]
impl Account {
    async fn without_name(&self) -> Result<(), LockError> {
        Ok(())
    }

    async fn without_name_either(&self) -> Result<(), LockError> {
        Ok(())
    }

    #[etcd_locked("accounts/<self.id>/audit")]
    async fn audit(&self) -> Result<(), LockError> {
        Ok(())
    }
}

fn main() {}
