use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>", wait = "5 seconds", ttl = "1.5m", max_hold = "5", min_hold = "0s")]
async fn unreadable(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", wait = "0s", ttl = "1s", max_hold = "0s", min_hold = "9999h")]
async fn too_short(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", wait = "9999h", ttl = "301s", max_hold = "9999h")]
async fn too_long(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", on_held = "wait", on_lost = "ignore", release = "later")]
async fn unknown(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", wait = 5m, ttl = 30, on_held = true)]
async fn not_a_text(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", wait = none)]
async fn without_quotes(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
