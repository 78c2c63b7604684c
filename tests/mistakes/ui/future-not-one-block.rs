use std::pin::Pin;

use etcd_locked::{LockError, etcd_locked};

// An early `return` would skip the lock.
#[etcd_locked("orders/<id>")]
fn ship(id: u64) -> Pin<Box<dyn Future<Output = Result<(), LockError>> + Send>> {
    if id == 0 {
        return Box::pin(async { Ok(()) });
    }
    Box::pin(async move { Ok(()) })
}

// Without `move`.
#[etcd_locked("orders")]
fn count() -> impl Future<Output = Result<(), LockError>> {
    async { Ok(()) }
}

fn main() {}
