etcd_locked::lock_names! {
    pub Order = "orders/<id: u64>";
    pub Line = "orders/<id: u64>/lines/<n: u32>";
    pub Orders = "orders";
}

fn main() {}
