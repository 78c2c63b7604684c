//! Processes that are stopped or killed: nobody waits for them longer than their TTL, and one that wakes up late does
//! not go on as if nothing had happened.

use std::future::IntoFuture;
use std::time::Duration;

use etcd_locked_tests::monotonic_ns;
use tokio::time::sleep;

use crate::corner::Corner;
use crate::limit::{run, within, within_time};
use crate::worker::Worker;

/// A worker whose locks have this TTL.
fn worker(corner: &Corner, ttl: &str) -> Worker {
    let mut environment = corner.environment();
    environment.push(("ETCD_LOCKED_TTL", ttl.to_owned()));
    Worker::start(environment)
}

fn ns(text: &str) -> u64 {
    text.rsplit(' ')
        .next()
        .and_then(|it| it.parse().ok())
        .unwrap_or_else(|| panic!("no time in `{text}`"))
}

#[test]
fn a_stopped_holder_is_not_polled_after_it_wakes() {
    run(async {
        let corner = Corner::new().await;
        let mut first = worker(&corner, "2s");
        let mut second = worker(&corner, "2s");
        first.tell("work till");
        let token: i64 = first
            .says("held")
            .await
            .split(' ')
            .nth(1)
            .unwrap()
            .parse()
            .unwrap();
        first.says("polled").await;
        second.tell("work till");
        corner.until_contenders("jobs/till", 2).await;

        first.stop();
        let stopped = monotonic_ns();
        let entry = second.says("held").await;
        let newer: i64 = entry.split(' ').nth(1).unwrap().parse().unwrap();
        assert!(newer > token, "{newer} after {token}");
        // The stop itself: three TTLs.
        sleep(Duration::from_nanos(
            6_000_000_000_u64.saturating_sub(monotonic_ns() - stopped),
        ))
        .await;
        let woken = monotonic_ns();
        first.cont();

        let lost = within("the loss", async {
            loop {
                let line = first.line().await;
                match line.split(' ').next() {
                    Some("polled") => {
                        assert!(ns(&line) < woken, "`{line}` after SIGCONT at {woken}")
                    }
                    Some("lost") => return line,
                    _ => panic!("a holder that was stopped said `{line}`"),
                }
            }
        });
        let lost = lost.await;
        assert!(lost.contains("Expired"), "{lost}");
        assert!(ns(&lost) >= woken);
        second.tell("done till");
        second.says("released").await;
        // The one that woke up does not disturb, and works again.
        first.tell("work till");
        first.says("held").await;
        first.tell("done till");
        first.says("released").await;
        assert!(!first.unheard().iter().any(|line| line.starts_with("lost")));
        corner.until_empty().await;
    });
}

#[test]
fn a_short_stop_changes_nothing() {
    run(async {
        let corner = Corner::new().await;
        let mut holder = worker(&corner, "3s");
        holder.tell("work till");
        holder.says("held").await;
        for _ in 0..4 {
            holder.stop();
            // The stop itself: well below the TTL.
            sleep(Duration::from_millis(400)).await;
            holder.cont();
            holder.says("polled").await;
        }
        let last = holder.unheard().pop();
        assert!(!last.is_some_and(|line| line.starts_with("lost")));
        holder.tell("done till");
        holder.says("released").await;
        corner.until_empty().await;
    });
}

#[test]
fn a_killed_holder_with_a_ttl_of_five_seconds_is_followed_within_six() {
    run(async {
        let corner = Corner::new().await;
        let mut holder = worker(&corner, "15s");
        let mut next = worker(&corner, "15s");
        holder.tell("work-five till");
        holder.says("held").await;
        next.tell("work till");
        corner.until_contenders("jobs/till", 2).await;
        let killed = monotonic_ns();
        holder.kill();
        let entry = within_time(Duration::from_secs(7), "the next holder", next.says("held")).await;
        let waited = Duration::from_nanos(ns(&entry) - killed);
        assert!(
            waited <= Duration::from_secs(6),
            "the next holder was in {waited:?} after the kill"
        );
        next.tell("done till");
        next.says("released").await;
    });
}

#[test]
fn a_killed_waiter_lets_the_others_pass() {
    run(async {
        let corner = Corner::new().await;
        let held = corner.locks().await.lock("jobs/till").await.unwrap();
        let mut waiter = worker(&corner, "2s");
        waiter.tell("work till");
        corner.until_contenders("jobs/till", 2).await;
        let last = tokio::spawn(
            corner
                .locks()
                .await
                .lock("jobs/till")
                .wait_forever()
                .into_future(),
        );
        corner.until_contenders("jobs/till", 3).await;
        waiter.kill();
        held.release().await.unwrap();
        let last = within_time(Duration::from_secs(4), "the last one's turn", last)
            .await
            .unwrap()
            .unwrap();
        last.release().await.unwrap();
        corner.until_empty().await;
    });
}

#[test]
fn a_stopped_waiter_is_passed_and_queues_again() {
    run(async {
        let corner = Corner::new().await;
        let held = corner.locks().await.lock("jobs/till").await.unwrap();
        let mut waiter = worker(&corner, "2s");
        waiter.tell("work till");
        let old = corner.until_contenders("jobs/till", 2).await[1].clone();
        waiter.stop();
        // Its lease runs out while it sleeps.
        corner.until_contenders("jobs/till", 1).await;
        waiter.cont();
        let new = corner.until_contenders("jobs/till", 2).await[1].clone();
        assert_ne!(old.created, new.created);
        held.release().await.unwrap();
        waiter.says("held").await;
        waiter.tell("done till");
        waiter.says("released").await;
        corner.until_empty().await;
    });
}
