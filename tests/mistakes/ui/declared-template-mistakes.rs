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
    pub Seat = "flights/<id: u64>/seats/<id: u64>";
    pub WithoutType = "without-type/<id>";
    pub WithoutTypeOfAField = "fields/<order.id>";
    pub TypeOfAField = "types/<self.id: u64>";
    pub Unsized = "files/<name: str>";
    pub Lifetime = "lifetimes/<n: &'a u64>";
    pub NoType = "no-types/<id: u64 or so>";
    pub Price = "prices/<at: f64>";
    pub Twice = "twice";
    pub Twice = "twice";
    #[derive(Clone, Debug)]
    pub Derived = "derived";
}

fn main() {}
