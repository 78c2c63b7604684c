etcd_locked::lock_names! {
    pub Order = "orders//<id: u64>/";
    pub Line = "lines/<n: u32";
    pub Job = "jobs/{name}";
    pub Shard = "shards/<n: u16>-<m: u16>";
    pub Empty = "";
    pub Stray = "strays/id>";
    pub Nameless = "nameless/<: u8>";
    pub Receiver = "receivers/<self: u8>";
    pub Kind = "kinds/<type: u8>";
}

fn main() {}
