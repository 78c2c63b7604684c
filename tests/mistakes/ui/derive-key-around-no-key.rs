use etcd_locked::LockKey;

#[derive(LockKey)]
struct Price(f64);

#[derive(LockKey)]
struct Id<T>(T);

fn main() {
    let _: &dyn LockKey = &Id(1.0);
}
