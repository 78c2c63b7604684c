use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("")]
async fn empty() -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("my orders/#<id>")]
async fn outside_the_alphabet(id: u64) -> Result<(), LockError> {
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

fn main() {}
