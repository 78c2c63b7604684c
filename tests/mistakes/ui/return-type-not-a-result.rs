use etcd_locked::etcd_locked;

struct AppError;

#[etcd_locked("orders/<id>")]
async fn text(id: u64) -> String {
    String::new()
}

#[etcd_locked("orders/<id>")]
async fn nothing(id: u64) {}

#[etcd_locked("orders/<id>")]
async fn without_from(id: u64) -> Result<(), AppError> {
    Ok(())
}

// rustc reports the error at the return type, although the path of `crate` is written elsewhere.
#[etcd_locked("orders/<id>", crate = ::etcd_locked)]
async fn with_a_path(id: u64) -> String {
    String::new()
}

fn main() {}
