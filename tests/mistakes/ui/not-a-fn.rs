use etcd_locked::etcd_locked;

#[etcd_locked("orders/<self.id>")]
struct Order {
    id: u64,
}

fn main() {}
