use etcd_locked::etcd_locked;

#[etcd_locked("orders/<id>")]
async fn ship(id: u64) -> String {
    String::new()
}

fn main() {}
