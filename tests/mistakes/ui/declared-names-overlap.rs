etcd_locked::lock_names! {
    pub Order = "orders/<id: &str>";
    pub Number = "numbers/<n: u64>";
    pub Archive = "orders/archive";
    pub NumberOne = "numbers/one";
    pub NumberTwo = "numbers/2";
    pub Line = "orders/<id: u64>/lines/<n: u32>";
    pub Orders = "orders";
}

// The structs exist all the same.
fn main() {
    let _ = (Order { id: "1" }, Number { n: 1 }, Archive, NumberOne, NumberTwo);
}
