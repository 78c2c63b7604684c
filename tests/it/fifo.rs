//! FIFO order: first come, first served, across processes.

use crate::corner::Corner;
use crate::limit;
use crate::worker::Worker;

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
    assert!(entries.is_sorted(), "the times of entry, in the order of arrival: {entries:?}");
}
