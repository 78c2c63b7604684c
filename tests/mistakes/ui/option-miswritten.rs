use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id>", wait, on_held =)]
async fn without_value(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", ttl("30s"), max_hold: "5s", detach = true, shared = true)]
async fn like_a_call(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", wait = "5s", detach, ttl = "30s", wait = "none", detach)]
async fn given_twice(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>" wait = "5s")]
async fn missing_comma(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked(wait = "5s", "orders/<id>")]
async fn name_after_option(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked(detach)]
async fn flag_for_an_argument(detach: String) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
