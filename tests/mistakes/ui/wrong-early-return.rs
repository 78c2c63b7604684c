use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>")]
async fn ship(id: u64) -> Result<String, LockError> {
    if id == 0 {
        return id;
    }
    Ok(String::new())
}

fn main() {}
