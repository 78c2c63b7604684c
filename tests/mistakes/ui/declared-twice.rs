etcd_locked::lock_names! {
    pub Order = "orders/<id: u64>";
    pub Order = "orders/<id: u64>";
}

fn main() {}
