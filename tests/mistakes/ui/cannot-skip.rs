use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>", on_held = "skip")]
async fn ship(id: u64) -> Result<String, LockError> {
    Ok(String::new())
}

#[etcd_locked("orders/<id>", on_held = "skip", on_error = |error| error.to_string())]
async fn show(id: u64) -> String {
    String::new()
}

fn main() {}
