use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>")]
async fn field(id: u64, shop: String) -> Result<(), LockError> {
    let open = shop.;
    let counted: u32 = shop;
    Ok(())
}

#[etcd_locked("orders/<id>")]
async fn statement(id: u64, shop: String) -> Result<(), LockError> {
    let = shop.len();
    let counted: u32 = shop;
    Ok(())
}

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

#[etcd_locked("smtp/<region>", permits = account., shared)]
async fn limit(account: &Account, region: &str) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
