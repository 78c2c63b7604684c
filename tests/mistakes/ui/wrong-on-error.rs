use etcd_locked::etcd_locked;

#[etcd_locked("orders/<id>", on_error = |error| error)]
async fn ship(id: u64) -> String {
    String::new()
}

fn main() {}
