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

fn main() {}
