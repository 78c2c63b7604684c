use etcd_locked::LockKey;

#[derive(LockKey)]
struct Line {
    order: u64,
    number: u32,
}

#[derive(LockKey)]
struct Nothing;

#[derive(LockKey)]
union Either {
    a: u32,
    b: f32,
}

#[derive(LockKey)]
enum State {
    New,
    Shipped(u64),
    Lost { by: u64 },
}

#[derive(LockKey)]
enum Never {}

#[derive(LockKey)]
#[lock_key(name = "order")]
struct OrderId(u64);

#[derive(LockKey)]
#[lock_key(crate = other)]
struct Sku(u64);

#[derive(LockKey)]
struct Price(f64);

#[derive(LockKey)]
struct Id<T>(T);

fn main() {
    let _: &dyn LockKey = &Id(1.0);
}
