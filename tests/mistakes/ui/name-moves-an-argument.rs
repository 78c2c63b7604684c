use etcd_locked::{LockError, etcd_locked};

etcd_locked::lock_names! {
    pub File = "files/<name: String>";
}

#[etcd_locked(File { name })]
async fn open(name: String) -> Result<String, LockError> {
    Ok(name)
}

#[etcd_locked(name, proof = held)]
async fn proven(name: String) -> Result<String, LockError> {
    println!("{}", held.token());
    Ok(name)
}

#[etcd_locked("orders/<id>", on_error = |error| format!("{id}: {error}"))]
async fn converted(id: String) -> String {
    id
}

fn main() {}
