etcd_locked::lock_names! {
    pub Transfer = "accounts/<id: u64>/to/<id: u64>";
}

fn main() {}
