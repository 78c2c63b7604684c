use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>", map_err = |error| error, on_error = Err)]
async fn ship(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
