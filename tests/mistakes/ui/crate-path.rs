use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>", crate = facade::etcd_locked)]
async fn relative(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", crate = super::facade)]
async fn of_the_parent(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", crate = "facade::etcd_locked")]
async fn text(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", crate = 5)]
async fn no_path(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", wait = "5s", crate = ::locked_by_etcd)]
async fn not_found(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
