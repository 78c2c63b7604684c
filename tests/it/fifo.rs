//! FIFO order: first come, first served, in one engine and across processes.

use std::sync::{Arc, Mutex};

use etcd_locked::{LockError, Locks, etcd_locked};
use tokio::task::JoinSet;

use crate::corner::{Corner, pass};
use crate::limit::{self, within};
use crate::steps::queued;
use crate::worker::Worker;

type Order = Arc<Mutex<Vec<usize>>>;

#[etcd_locked("till/<number>", locks = &locks, wait = "forever")]
async fn enter(locks: Locks, number: u8, who: usize, order: Order) -> Result<(), LockError> {
    order.lock().expect("no panic under it").push(who);
    Ok(())
}

async fn all(mut tasks: JoinSet<()>) {
    while let Some(ended) = within("the next waiter's end", tasks.join_next()).await {
        ended.expect("a waiter that does not panic");
    }
}

#[limit::test]
async fn calls_of_one_engine_are_served_in_order() {
    let (_, [locks]) = Corner::with_engines().await;
    let order = Order::default();
    let held = locks.lock("till/1").await.unwrap();
    let mut tasks = JoinSet::new();
    for who in 0..10 {
        // A call enters the wait queue at its first poll, so each is polled before the next is made.
        let call = queued(enter(locks.clone(), 1, who, order.clone()));
        tasks.spawn(async move { call.await.expect("served") });
    }
    held.release().await.unwrap();
    all(tasks).await;
    assert_eq!(*order.lock().unwrap(), (0..10).collect::<Vec<_>>());
}

#[limit::test]
async fn processes_are_served_in_order() {
    let corner = Corner::new().await;
    let held = corner.locks().await.lock("jobs/till").await.unwrap();
    let mut workers = Vec::new();
    for who in 0..3 {
        let mut worker = Worker::start(corner.environment());
        worker.send("work till");
        corner.until_contenders("jobs/till", who + 2).await;
        workers.push(worker);
    }
    held.release().await.unwrap();
    let mut entries = Vec::new();
    for worker in &mut workers {
        let entry = worker.says("held").await;
        worker.asked("done till", "released").await;
        entries.push(entry.split(' ').nth(2).unwrap().parse::<u64>().unwrap());
    }
    assert!(
        entries.is_sorted(),
        "the times of entry, in the order of arrival: {entries:?}"
    );
}

#[limit::test]
async fn a_try_does_not_overtake_waiters() {
    let (corner, [first, second]) = Corner::with_engines().await;
    let held = first.lock("till/1").await.unwrap();
    let waiter = queued(second.lock("till/1").wait_forever());
    corner.until_contenders("till/1", 2).await;
    held.release().await.unwrap();
    // The waiter owns the name now, although its engine has not read that yet.
    let refused = first.lock("till/1").try_once().await;
    assert_matches!(refused, Err(LockError::Held { .. }));
    pass("the waiter's admission", waiter).await;
}
