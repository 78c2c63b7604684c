etcd_locked::lock_names! {
    #[derive(Clone, Debug)]
    pub Order = "orders/<id: u64>";
}

fn main() {}
