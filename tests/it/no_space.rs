//! etcd at its quota: it carries out the writes that cross the quota and refuses them all the same.

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
/// A key that no process renews is gone within what `until_empty` waits for.
const TTL: Duration = Duration::from_secs(14);
const ENGINES: usize = 4;
const TASKS: usize = 60;
/// So many that requests queue in etcd, ours among them, when the quota is crossed.
const FILLS: usize = 64;
/// How often the quota is crossed: not every crossing meets a request of ours.
const ROUNDS: usize = 6;
/// Below no prefix of ours.
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
            // A busy machine is no refusal; what the call has left must go all the same.
            Some(error) if chain(&error).contains("no answer in time") => {}
            Some(error) => return error,
            None => {}
        }
    }
}

/// Takes the fill away and lets etcd write again.
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
        // Its lease and its session key are there before there is no space.
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
    // No name is closed to the engine that was refused, nor to another.
    make_room(&mut client).await;
    for (task, name) in names.iter().enumerate() {
        let locks = &engines[(task + task / ENGINES) % ENGINES];
        pass("a lock with space again", locks.lock(&**name).wait_forever()).await;
    }
    corner.until_empty().await;
}
