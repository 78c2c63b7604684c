//! Outages of etcd: calls fail soon with `Backend`. A short outage costs no lock, and a long one costs only the locks.

use std::future::{IntoFuture, pending, poll_fn};
use std::task::Poll;
use std::time::Duration;

use etcd_client::{AlarmAction, AlarmOptions, AlarmType};
use etcd_locked::{LockError, LossCause};
use etcd_locked_devkit::Proxy;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::corner::{Corner, admitted, connect, pass, served, spawn, take};
use crate::etcd::Etcd;
use crate::limit::{self, PATIENCE, run, within, within_time};
use crate::real_only::real_etcd_only;

/// How long calls wait for an etcd that restarts, on a busy machine.
const PATIENT: Duration = Duration::from_secs(20);

#[limit::test]
async fn a_lock_survives_a_restart_of_etcd() {
    let mut etcd = Etcd::start().await;
    let corner = Corner::of(&etcd).await;
    let config = corner.config().connect_timeout(PATIENT);
    let (mine, theirs) = (connect(config.clone()).await, connect(config).await);
    let held = mine.lock("orders/7").await.unwrap();
    let token = held.token();
    let waiter = spawn(theirs.lock("orders/7").wait_forever());
    corner.until_contenders("orders/7", 2).await;
    let kept = held.hold(async {
        etcd.kill();
        let call = spawn(mine.lock("orders/8").wait_forever());
        etcd.start_again().await;
        served("a call made meanwhile", call).await;
        // Both keys exist, and the body works past the next renewal.
        corner.until_contenders("orders/7", 2).await;
        sleep(Duration::from_secs(6)).await;
    });
    within("the body's end", kept).await.unwrap();
    assert!(held.is_held());
    held.release().await.unwrap();
    let next = admitted("the waiter's admission", waiter).await;
    assert!(next.token() > token);
    next.release().await.unwrap();
    corner.until_empty().await;
}

#[limit::test]
async fn a_wiped_etcd_costs_the_locks_and_serves_new_ones() {
    let mut etcd = Etcd::start().await;
    let corner = Corner::of(&etcd).await;
    // Bodies must not continue until the next renewal, which is due in 20 seconds.
    let locks = connect(corner.config().ttl(Duration::from_secs(60))).await;
    // Revisions beyond those of the fresh etcd.
    for _ in 0..20 {
        pass("a free name", locks.lock("orders/8")).await;
    }
    let held = locks.lock("orders/7").await.unwrap();
    let inside = Notify::new();
    let body = held.hold(async {
        inside.notify_one();
        pending::<()>().await
    });
    let wiping = async {
        inside.notified().await;
        sleep(Duration::from_millis(1_500)).await; // it is watched by then
        etcd.kill();
        etcd.wipe();
        etcd.start_again().await;
    };
    let loss = async { tokio::join!(body, wiping) };
    let (ended, ()) = within_time(Duration::from_secs(10), "the loss", loss).await;
    assert_matches!(ended, Err(LockError::Lost { cause, .. }) if cause == LossCause::Wiped);
    drop(held);
    let again = take("a lock in the new world", locks.lock("orders/7")).await;
    assert_eq!(corner.contenders("orders/7").await.len(), 1);
    again.release().await.unwrap();
    corner.until_empty().await;
}

/// Makes calls while etcd has this fault, for names in every state and with every kind of wait, and awaits that each fails
/// within ten seconds.
async fn all_fail_soon(fault: impl FnOnce(&mut Etcd), mend: impl FnOnce(&Etcd)) {
    let mut etcd = Etcd::start().await;
    let corner = Corner::of(&etcd).await;
    // A separate engine for each state of its name, so that one does not benefit from what another has noticed.
    let mut engines = Vec::new();
    for name in ["idle", "queued", "held", "deleting"] {
        let locks = connect(corner.config().connect_timeout(Duration::from_secs(4))).await;
        // With a session, so that the outage affects exchanges and not a first connection.
        pass("a free name", locks.lock(format!("first/{name}"))).await;
        engines.push(locks);
    }
    let [idle, queued, held, deleting] = &engines[..] else { panic!("four engines") };
    let strange = format!("{}1234", corner.below("queued"));
    corner.client.clone().put(strange, "", None).await.expect("etcd takes a put");
    let in_queue = spawn(queued.lock("queued").wait_forever());
    corner.until_contenders("queued", 2).await;
    let _holder = take("a free name", held.lock("held")).await;
    let behind = spawn(held.lock("held").wait_forever());
    let given = take("a free name", deleting.lock("deleting")).await;

    fault(&mut etcd);
    let began = Instant::now();
    drop(given);
    // The engine gets the release before the next call, which would otherwise be refused because of it.
    let mut tried = Box::pin(deleting.lock("deleting").try_once().into_future());
    let first = poll_fn(|cx| Poll::Ready(tried.as_mut().poll(cx))).await;
    assert!(first.is_pending(), "etcd has not answered");
    let calls = [
        ("a call in etcd's queue", in_queue),
        ("a call behind a holder", behind),
        ("a wait for an idle name", spawn(idle.lock("idle").wait_forever())),
        ("another wait for a queued name", spawn(queued.lock("queued").wait_forever())),
        ("another wait for a held name", spawn(held.lock("held").wait_forever())),
        ("a try behind a release", tokio::spawn(tried)),
        ("a wait behind it", spawn(deleting.lock("deleting").wait(Duration::from_secs(120)))),
    ];
    let mut wrong = Vec::new();
    for (what, call) in calls {
        let answer = timeout(PATIENCE, call).await.map(|it| it.expect("no panic"));
        let took = began.elapsed();
        if !matches!(answer, Ok(Err(LockError::Backend { .. }))) || took.as_secs() >= 10 {
            wrong.push(format!("{what}: {answer:?} after {took:.1?}"));
        }
    }
    mend(&etcd);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_call_fails_soon_when_etcd_is_frozen() {
    run(all_fail_soon(|etcd| etcd.stop(), Etcd::cont));
}

#[test]
fn every_call_fails_soon_when_etcd_is_killed() {
    run(all_fail_soon(Etcd::kill, |_| ()));
}

/// etcd then refuses every write, but still renews leases and serves reads.
#[limit::test]
async fn alarm_corrupt_is_one_error_and_no_outage() {
    real_etcd_only!("an embedded etcd has no alarms");
    let etcd = Etcd::start().await;
    let corner = Corner::of(&etcd).await;
    let mut worker = corner.worker([("ETCD_LOCKED_TTL", "5s"), ("WORKER_LOGS", "info")]);
    let mut next = corner.worker([]);
    for job in ["till", "desk"] {
        worker.asked(&format!("work {job}"), "held").await;
    }
    next.send("work till");
    corner.until_contenders("jobs/till", 2).await;
    let alarm = async |action| {
        let status = corner.client.clone().status().await.expect("a status");
        let mut of = AlarmOptions::new();
        of.with_member(status.header().expect("a header").member_id());
        let answer = corner.client.clone().alarm(action, AlarmType::Corrupt, Some(of)).await;
        answer.expect("the alarm");
    };

    alarm(AlarmAction::Activate).await;
    worker.send("done desk");
    let began = Instant::now();
    // Longer than a lease.
    while began.elapsed() < Duration::from_secs(12) {
        let asked = worker.asked("lock orders/7", "failed");
        let failed = within_time(Duration::from_secs(5), "a refusal", asked).await;
        assert!(failed.contains("Backend") && failed.contains("CORRUPT"), "{failed}");
        sleep(Duration::from_millis(200)).await;
    }
    let codes = ["etcd.refused", "etcd.releases_denied", "etcd.lost", "lock.lost"];
    assert_eq!(codes.map(|code| worker.logged(code)), [1, 1, 0, 0], "{:#?}", worker.output);
    alarm(AlarmAction::Deactivate).await;
    worker.asked("lock orders/7", "locked").await;
    worker.asked("done till", "released").await;
    next.says("held").await;
    next.asked("done till", "released").await;
    corner.until_empty().await;
}

#[limit::test]
async fn connects_are_few_while_calls_wait_for_etcd() {
    const SECONDS: u64 = 3;
    /// Limit of all requests of one engine.
    const MOST: u64 = 50 * SECONDS;
    let mut etcd = Etcd::start().await;
    let corner = Corner::of(&etcd).await;
    let proxy = Proxy::start(etcd.address()).expect("a proxy");
    // Locks outlast the outage.
    let config = corner.config_via([proxy.endpoint()]).ttl(Duration::from_secs(60));
    let locks = connect(config.connect_timeout(Duration::from_secs(2))).await;
    let elsewhere = corner.locks_with_ttl(Duration::from_secs(60)).await;
    let hot = take("the hot name", elsewhere.lock("hot")).await;
    let mut calls = JoinSet::new();
    for task in 0..20 {
        let own = take("a free name", locks.lock(format!("own/{task}"))).await;
        let locks = locks.clone();
        calls.spawn(async move {
            // It waits for more than a second, with a key that shows what its task holds.
            let nested = own.hold(async { locks.lock("hot").wait(Duration::from_secs(6)).await });
            let refused = nested.await.expect("the outer lock is kept");
            assert_matches!(refused, Err(LockError::Backend { .. } | LockError::Timeout { .. }));
            own
        });
    }
    corner.until_contenders("hot", 2).await;
    sleep(Duration::from_secs(2)).await;
    etcd.kill();
    let connects = async || {
        let before = proxy.connections();
        sleep(Duration::from_secs(SECONDS)).await;
        proxy.connections() - before
    };
    let waiting = connects().await;
    let own = within("every call refused", calls.join_all()).await;
    let refused = connects().await;
    assert!(waiting <= MOST && refused <= MOST, "{waiting} and {refused} connects");
    etcd.start_again().await;
    for guard in own {
        within("a release", guard.release()).await.expect("its lock outlasts the outage");
    }
    hot.release().await.unwrap();
    corner.until_empty().await;
}
