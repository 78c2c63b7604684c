use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<idd>")]
async fn ship(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

// No error here: `ship` exists in spite of the mistake in its attribute.
async fn caller() -> Result<u64, LockError> {
    ship(1).await
}

struct Shop;

trait Ship {
    async fn ship(&self) -> Result<u64, LockError>;
}

impl Ship for Shop {
    #[etcd_locked("orders/<self.id")]
    async fn ship(&self) -> Result<u64, LockError> {
        caller().await
    }
}

fn main() {}
