use etcd_locked::LockKey;

#[derive(LockKey)]
#[lock_key(name = "order")]
struct OrderId(u64);

#[derive(LockKey)]
#[lock_key(crate = other)]
struct Sku(u64);

fn main() {}
