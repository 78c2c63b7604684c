use etcd_locked::{LockError, etcd_locked};

struct Path<T>(T);

#[async_trait::async_trait]
trait Shop {
    async fn ship(&self, id: Path<u64>) -> Result<(), LockError>;
}

#[async_trait::async_trait]
impl Shop for () {
    #[etcd_locked("orders/<id>")]
    async fn ship(&self, Path(id): Path<u64>) -> Result<(), LockError> {
        let _ = id;
        Ok(())
    }
}

fn main() {}
