use etcd_locked::etcd_locked;

#[etcd_locked("orders/<id>", map_err = |error| error.to_string())]
async fn ship(id: u64) -> String {
    String::new()
}

fn main() {}
