etcd_locked::lock_names! {
    pub Order = "orders/<id: OrderId>";
}

fn main() {}
