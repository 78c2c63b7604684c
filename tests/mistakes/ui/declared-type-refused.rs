etcd_locked::lock_names! {
    pub File = "files/<name: str>";
    pub Shard = "shards/<n: &'a u64>";
    pub Order = "orders/<id: u64 or so>";
    pub Price = "prices/<at: f64>";
}

fn main() {}
