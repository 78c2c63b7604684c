use etcd_locked::{LockError, etcd_locked};

#[derive(Debug)]
enum AppError {
    Busy(LockError),
}

#[etcd_locked("orders/<id>", map_err = |error| error.to_string())]
async fn ship(id: u64) -> Result<(), AppError> {
    Ok(())
}

fn main() {}
