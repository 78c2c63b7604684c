use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>")]
fn blocking(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>")]
const fn constant(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>")]
extern "C" fn foreign(id: u64) {
    drop(id)
}

#[etcd_locked("orders/<id>")]
async fn endless(id: u64) -> ! {
    std::future::pending().await
}

trait Ship {
    #[etcd_locked("orders/<id>")]
    async fn without_body(&self, id: u64) -> Result<(), LockError>;
}

fn main() {}
