use etcd_locked::{Locked, Name};

fn main() {
    let order = Locked::<Name>::new();
    println!("{}", order.token());
}
