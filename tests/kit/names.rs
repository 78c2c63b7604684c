//! Names that a test asserts on: `held` and `waiting` of the test kit.

use etcd_locked::lock_names;

use crate::service::{Packing, ship, start};

const NONE: [&str; 0] = [];

lock_names! {
    pub(crate) Order = "orders/<id: u64>";
}

#[tokio::test]
async fn held_and_waiting_list_names() {
    let etcd = start().await;
    assert_eq!(etcd.held().await, NONE);
    assert_eq!(etcd.waiting().await, NONE);
    let nine = Packing::of(9);
    let seven = Packing::of(7);
    assert_eq!(etcd.held().await, ["orders/7", "orders/9"]);

    // Two in this process's wait queue, one in another process.
    let (one, two) = (tokio::spawn(ship(7)), tokio::spawn(ship(7)));
    let other = etcd.second().await.unwrap();
    let three = tokio::spawn(other.lock(Order { id: 9 }).into_future());
    assert_eq!(etcd.held().await, ["orders/7", "orders/9"]);
    assert_eq!(etcd.waiting().await, ["orders/7", "orders/7", "orders/9"]);

    // One waiter is cancelled.
    one.abort();
    assert_eq!(etcd.waiting().await, ["orders/7", "orders/9"]);
    seven.ship().await.unwrap();
    two.await.unwrap().unwrap();
    assert_eq!(etcd.held().await, ["orders/9"]);
    nine.ship().await.unwrap();
    let held = three.await.unwrap().unwrap();
    assert_eq!(etcd.held().await, ["orders/9"]);
    assert_eq!(etcd.waiting().await, NONE);

    // A whole process goes away.
    drop((held, other));
    assert_eq!(etcd.held().await, NONE);
}
