use etcd_locked::{LockError, etcd_locked};

#[etcd_locked(name, guard = held)]
async fn ship(name: String) -> Result<String, LockError> {
    println!("{}", held.token());
    Ok(name)
}

fn main() {}
