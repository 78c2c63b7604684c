use etcd_locked::{LockError, etcd_locked};

struct Mailer {
    region: String,
    limit: u32,
}

#[etcd_locked("smtp/<self.region>", permits = self.limit)]
impl Mailer {
    async fn send(&self) -> Result<(), LockError> {
        Ok(())
    }

    async fn receive(&self) -> Result<(), LockError> {
        Ok(())
    }
}

fn main() {}
