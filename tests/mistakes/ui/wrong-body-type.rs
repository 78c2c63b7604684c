use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>")]
async fn tail(id: u64) -> Result<String, LockError> {
    let shipped: Result<u64, LockError> = Ok(id);
    shipped
}

#[etcd_locked("orders/<id>")]
async fn forgotten_tail(id: u64) -> Result<u64, LockError> {
    Ok(id);
}

#[etcd_locked("orders/<id>")]
async fn early_return(id: u64) -> Result<String, LockError> {
    if id == 0 {
        return id;
    }
    Ok(String::new())
}

#[etcd_locked("orders/<id>")]
async fn question_mark(id: &str) -> Result<u64, LockError> {
    Ok(id.parse()?)
}

fn main() {}
