use etcd_locked::etcd_locked;

#[etcd_locked("orders/<id>")]
extern "C" fn ship(id: u64) {}

fn main() {}
