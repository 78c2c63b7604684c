use etcd_locked::etcd_locked;

#[etcd_locked("orders/<id>", on_held = "skip", on_error = |error| error.to_string())]
async fn ship(id: u64) -> String {
    String::new()
}

fn main() {}
