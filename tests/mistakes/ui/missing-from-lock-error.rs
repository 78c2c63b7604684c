use etcd_locked::etcd_locked;

struct AppError;

#[etcd_locked("orders/<id>")]
async fn ship(id: u64) -> Result<(), AppError> {
    Ok(())
}

fn main() {}
