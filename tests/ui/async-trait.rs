use std::pin::Pin;

use etcd_locked::{LockError, etcd_locked};

struct Shop;

// What `#[async_trait]` leaves of `async fn ship(id: u64) -> Result<(), LockError>`.
impl Shop {
    #[etcd_locked("orders/<id>")]
    fn ship(id: u64) -> Pin<Box<dyn Future<Output = Result<(), LockError>> + Send>> {
        Box::pin(async move { Ok(()) })
    }
}

fn main() {}
