etcd_locked::lock_names! {
    pub Seat = "flights/<id: u64>/seats/<id: u64>";
}

fn main() {}
