use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("", "my orders/#<id>", "/orders/<id>", "orders/<id>/", "orders//<id>")]
async fn segments(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", "stock/<id>", "orders/<id>")]
async fn twice(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked(Order { id: })]
async fn unreadable(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked(
    "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s",
    "t", "u", "v", "w", "x", "y", "z", "0", "1", "2", "3", "4", "5", "6"
)]
async fn too_many() -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked]
async fn missing(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked(wait = "5s")]
async fn missing_before_an_option() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
