//! Stopped and killed processes: others wait for them at most for their TTL, and a process that wakes up late does not
//! continue its body.

use std::time::Duration;

use etcd_locked_tests::monotonic_ns;
use tokio::time::sleep;

use crate::corner::{Corner, spawn};
use crate::limit::{self, within, within_time};
use crate::worker::Worker;

/// Starts a worker whose locks have this TTL, and which logs warnings.
fn worker(corner: &Corner, ttl: &str) -> Worker {
    corner.worker([("ETCD_LOCKED_TTL", ttl), ("WORKER_LOGS", "warn")])
}

fn ns(text: &str) -> u64 {
    text.rsplit(' ')
        .next()
        .and_then(|it| it.parse().ok())
        .unwrap_or_else(|| panic!("no time in `{text}`"))
}

#[limit::test]
async fn a_stopped_holder_is_not_polled_after_it_wakes() {
    let corner = Corner::new().await;
    let mut first = worker(&corner, "2s");
    // Only the first must lose its lock, however busy the machine is.
    let mut second = worker(&corner, "15s");
    let token: i64 =
        first.asked("work till", "held").await.split(' ').nth(1).unwrap().parse().unwrap();
    first.says("polled").await;
    second.send("work till");
    corner.until_contenders("jobs/till", 2).await;

    first.stop();
    let stopped = monotonic_ns();
    let entry = second.says("held").await;
    let newer: i64 = entry.split(' ').nth(1).unwrap().parse().unwrap();
    assert!(newer > token, "{newer} after {token}");
    // The stop itself: three TTLs.
    sleep(Duration::from_nanos(6_000_000_000_u64.saturating_sub(monotonic_ns() - stopped))).await;
    let woken = monotonic_ns();
    first.cont();

    // The body may notice it by the clock before the engine does: both lines come, in either order.
    let (mut lost, mut logged) = (String::new(), false);
    while lost.is_empty() || !logged {
        let line = within("the loss and its line", first.line()).await;
        match line.split(' ').next() {
            Some("polled") => assert!(ns(&line) < woken, "`{line}` after SIGCONT at {woken}"),
            Some("lost") => lost = line,
            Some("logged") => logged |= line.contains("lock.lost"),
            _ => panic!("a holder that was stopped said `{line}`"),
        }
    }
    assert!(lost.contains("Expired") && ns(&lost) >= woken, "{lost}");
    second.asked("done till", "released").await;
    // The process that woke up does not disturb a holder, and can lock again.
    first.asked("work till", "held").await;
    first.asked("done till", "released").await;
    assert!(!first.unread().iter().any(|line| line.starts_with("lost")));
    corner.until_empty().await;
}

#[limit::test]
async fn a_short_stop_changes_nothing() {
    let corner = Corner::new().await;
    let mut holder = worker(&corner, "8s");
    holder.asked("work till", "held").await;
    for _ in 0..4 {
        holder.stop();
        // The stop itself: well below the TTL.
        sleep(Duration::from_millis(400)).await;
        holder.cont();
        holder.says("polled").await;
    }
    let last = holder.unread().pop();
    assert!(!last.is_some_and(|line| line.starts_with("lost")));
    holder.asked("done till", "released").await;
    corner.until_empty().await;
}

#[limit::test]
async fn a_killed_holder_with_a_ttl_of_5_s_is_followed_within_6_s() {
    let corner = Corner::new().await;
    // The fastest of three, because a busy machine may stand still for a second.
    let mut waited = Duration::MAX;
    for _ in 0..3 {
        let mut holder = worker(&corner, "15s");
        let mut next = worker(&corner, "15s");
        holder.asked("work-five till", "held").await;
        next.send("work till");
        corner.until_contenders("jobs/till", 2).await;
        let killed = monotonic_ns();
        holder.kill();
        let entry = next.says("held").await;
        waited = waited.min(Duration::from_nanos(ns(&entry) - killed));
        next.asked("done till", "released").await;
        if waited <= Duration::from_secs(6) {
            break;
        }
    }
    assert!(waited <= Duration::from_secs(6), "in after {waited:?} at best");
}

#[limit::test]
async fn a_killed_waiter_lets_the_others_pass() {
    let corner = Corner::new().await;
    let held = corner.locks().await.lock("jobs/till").await.unwrap();
    let mut waiter = worker(&corner, "2s");
    waiter.send("work till");
    corner.until_contenders("jobs/till", 2).await;
    let other = spawn(corner.locks().await.lock("jobs/till").wait_forever());
    corner.until_contenders("jobs/till", 3).await;
    waiter.kill();
    held.release().await.unwrap();
    // Less than the 15 s of the others' TTL.
    let other = within_time(Duration::from_secs(10), "the other's admission", other)
        .await
        .unwrap()
        .unwrap();
    other.release().await.unwrap();
    corner.until_empty().await;
}
