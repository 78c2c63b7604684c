etcd_locked::lock_names! {
    pub Order = "orders/<id>";
    pub Line = "lines/<order.id>";
    pub Job = "jobs/<self.id: u64>";
}

fn main() {}
