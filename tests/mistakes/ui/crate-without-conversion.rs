use etcd_locked::etcd_locked;

// rustc reports the error at the return type, although the path of `crate` is written elsewhere.
#[etcd_locked("orders/<id>", crate = ::etcd_locked)]
async fn ship(id: u64) -> String {
    String::new()
}

fn main() {}
