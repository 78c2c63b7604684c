//! Quota of etcd: a write that crosses it is applied, but etcd responds with a refusal.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use etcd_client::{AlarmAction, AlarmOptions, AlarmType, Client, CompactionOptions, DeleteOptions};
use etcd_locked::{LockError, Locks};
use etcd_locked_tests::chain;
use tokio::task::JoinSet;

use crate::corner::{Corner, pass};
use crate::etcd::Etcd;
use crate::limit::{self, within};
use crate::logs;
use crate::real_only::real_etcd_only;

pub(crate) const QUOTA: u64 = 16 * 1024 * 1024;
/// Short enough that a key which no process renews is gone before `until_empty` gives up.
const TTL: Duration = Duration::from_secs(14);
const ENGINES: usize = 4;
const TASKS: usize = 60;
/// Enough tasks that requests queue in etcd, ours among them, when the quota is crossed.
const FILLS: usize = 64;
/// Number of crossings of the quota, because not every crossing meets a request of ours.
const ROUNDS: usize = 6;
/// Prefix of other keys, outside of ours.
const FILL: &str = "fill/";

/// Puts values from several tasks until etcd refuses them.
pub(crate) async fn fill(client: &Client, tasks: usize) {
    let next = Arc::new(AtomicU64::new(0));
    let mut fills = JoinSet::new();
    for _ in 0..tasks {
        let (mut client, next) = (client.clone(), next.clone());
        fills.spawn(async move {
            loop {
                let key = format!("{FILL}{}", next.fetch_add(1, Ordering::Relaxed));
                if let Err(error) = client.put(key, vec![b'x'; 16 * 1024], None).await {
                    return chain(&error);
                }
            }
        });
    }
    for refused in within("a full etcd", fills.join_all()).await {
        assert!(refused.contains("database space exceeded"), "{refused}");
    }
}

/// Locks and releases until etcd refuses.
async fn lock(locks: Locks, name: String) -> LockError {
    loop {
        let refused = match locks.lock(&*name).wait_forever().await {
            Ok(guard) => guard.release().await.err(),
            Err(error) => Some(error),
        };
        match refused {
            // A time-out on a busy machine is not a refusal. Keys that the call left must still go.
            Some(error) if chain(&error).contains("no response in time") => {}
            Some(error) => return error,
            None => {}
        }
    }
}

/// Deletes the fill and lets etcd write again.
pub(crate) async fn make_room(client: &mut Client) {
    let all = DeleteOptions::new().with_prefix();
    let deleted = client.delete(FILL, Some(all)).await.expect("a delete");
    let revision = deleted.header().expect("a header").revision();
    let compacted = client.compact(revision, Some(CompactionOptions::new().with_physical())).await;
    compacted.expect("a compaction");
    client.defragment().await.expect("a defragmentation");
    let raised = client.alarm(AlarmAction::Get, AlarmType::None, None).await;
    for alarm in raised.expect("etcd's alarms").alarms() {
        let mut of = AlarmOptions::new();
        of.with_member(alarm.member_id());
        let disarmed = client.alarm(AlarmAction::Deactivate, alarm.alarm(), Some(of)).await;
        disarmed.expect("the alarm can be disarmed");
    }
}

#[limit::test]
async fn a_refused_lock_leaves_no_key() {
    real_etcd_only!("an embedded etcd has no space quota");
    logs::collect();
    let etcd = Etcd::start_with_quota(QUOTA).await;
    let corner = Corner::of(&etcd).await;
    let mut client = corner.client.clone();
    let mut engines = Vec::new();
    for _ in 0..ENGINES {
        let locks = corner.locks_with_ttl(TTL).await;
        // Its lease and its session key exist before the quota is reached.
        pass("a free name", locks.lock("first")).await;
        engines.push(locks);
    }
    let names: Vec<_> = (0..ENGINES * TASKS).map(|task| format!("jobs/{task}")).collect();
    for round in 0..ROUNDS {
        if round > 0 {
            make_room(&mut client).await;
        }
        let mut calls = JoinSet::new();
        for (task, name) in names.iter().enumerate() {
            calls.spawn(lock(engines[task % ENGINES].clone(), name.clone()));
        }
        fill(&client, FILLS).await;
        for refused in within("every call's end", calls.join_all()).await {
            assert_matches!(refused, LockError::Backend { .. });
            assert!(chain(&refused).contains("database space exceeded"), "{refused:?}");
        }
    }
    logs::until(&["etcd.refused"]).await;
    corner.until_empty().await;
    for session in corner.sessions().await {
        assert!(corner.lease_lives(session.lease).await, "{session:?}");
    }
    // No name is blocked for the engine that was refused, or for another.
    make_room(&mut client).await;
    for (task, name) in names.iter().enumerate() {
        let locks = &engines[(task + task / ENGINES) % ENGINES];
        pass("a lock with space again", locks.lock(&**name).wait_forever()).await;
    }
    corner.until_empty().await;
}
