use etcd_locked::{LockError, etcd_locked};

etcd_locked::lock_names! {
    pub File = "files/<name: String>";
}

#[etcd_locked(File { name })]
async fn open(name: String) -> Result<String, LockError> {
    Ok(name)
}

fn main() {}
