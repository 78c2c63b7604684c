use etcd_locked::LockKey;

#[derive(LockKey)]
enum State {
    New,
    Shipped(u64),
    Lost { by: u64 },
}

#[derive(LockKey)]
enum Never {}

fn main() {}
