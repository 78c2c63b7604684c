etcd_locked::lock_names! {
    pub struct Order = "orders/<id: u64>";
    pub Line: "lines/<n: u32>";
    pub Job = jobs;
    pub type = "types";
    pub Shard = "shards/<n: u16>"
    pub Nightly = "jobs/nightly";
    "templates/alone";
}

// The structs of the readable declarations exist.
fn main() {
    let _ = (Line, Job, Shard { n: 1 }, Nightly);
}
