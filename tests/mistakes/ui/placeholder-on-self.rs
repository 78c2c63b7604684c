use etcd_locked::{LockError, etcd_locked};

struct Shop;

impl Shop {
    #[etcd_locked("shops/<self>")]
    async fn close(&self) -> Result<(), LockError> {
        Ok(())
    }
}

#[etcd_locked("shops/<self.id>")]
async fn close(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
