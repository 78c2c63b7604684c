//! Warnings: a fault of etcd or of many locks is one line in the log, and its end another.

use std::time::Duration;

use etcd_locked::{LockError, Locks, LossCause, etcd_locked};
use etcd_locked_devkit::Proxy;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::corner::{Corner, connect, take};
use crate::limit::{self, within};
use crate::logs;

const TOGETHER: usize = 300;
const TTL: Duration = Duration::from_secs(5);
/// Between two looks at what is awaited: others need the processor.
const NOT_BUSY: Duration = Duration::from_millis(20);

#[etcd_locked("lost-together/<id>", locks = &locks, wait = "forever")]
async fn lost(locks: Locks, id: usize, inside: watch::Sender<usize>) -> Result<(), LockError> {
    inside.send_modify(|inside| *inside += 1);
    std::future::pending().await
}

#[etcd_locked("cut-off-together/<id>", locks = &locks, wait = "forever")]
async fn cut_off(locks: Locks, id: usize, inside: watch::Sender<usize>) -> Result<(), LockError> {
    inside.send_modify(|inside| *inside += 1);
    std::future::pending().await
}

#[etcd_locked("limited-differently/<id>", locks = locks, wait = "none", permits = 1)]
async fn limited(locks: &Locks, id: u64) -> Result<(), LockError> {
    Ok(())
}

/// Bodies that have begun.
async fn all_inside<F>(body: impl Fn(usize, watch::Sender<usize>) -> F) -> JoinSet<F::Output>
where
    F: Future<Output = Result<(), LockError>> + Send + 'static,
{
    let inside = watch::Sender::new(0);
    let mut bodies = JoinSet::new();
    for id in 0..TOGETHER {
        bodies.spawn(body(id, inside.clone()));
    }
    let mut inside = inside.subscribe();
    let all = inside.wait_for(|inside| *inside == TOGETHER);
    within("every body inside", all).await.expect("the sender");
    bodies
}

/// Awaits that each body has ended with this cause.
async fn all_lost(bodies: JoinSet<Result<(), LockError>>, wanted: LossCause) {
    for end in within("the bodies' ends", bodies.join_all()).await {
        assert_matches!(end, Err(LockError::Lost { cause, .. }) if cause == wanted);
    }
}

/// Awaits this many lines of a code about an address or a template.
async fn logged(about: &str, code: &str, lines: usize) -> Vec<String> {
    within(code, async {
        loop {
            let mut found = logs::about(about);
            found.retain(|line| line.contains(&format!("code={code:?}")));
            if found.len() >= lines {
                return found;
            }
            sleep(NOT_BUSY).await;
        }
    })
    .await
}

/// An engine behind a proxy of its own, by whose address its lines are told apart.
async fn behind_a_proxy(corner: &Corner) -> (Locks, Proxy) {
    logs::collect();
    let proxy = Proxy::start(corner.endpoint.trim_start_matches("http://")).expect("a proxy");
    let config = corner.config_via([proxy.endpoint()]).ttl(TTL);
    (connect(config).await, proxy)
}

#[limit::test]
async fn locks_lost_in_an_outage_are_one_line() {
    let corner = Corner::new().await;
    let (locks, proxy) = behind_a_proxy(&corner).await;
    let bodies = all_inside(|id, inside| lost(locks.clone(), id, inside)).await;
    proxy.refuse();
    proxy.reset_all();
    all_lost(bodies, LossCause::Expired).await;
    let lost = logged("lost-together/<id>", "lock.lost", 1).await;
    assert_eq!(lost.len(), 1, "{lost:#?}");
    logged(&proxy.endpoint(), "etcd.lost", 1).await;
    for _ in 0..3 {
        let refused = within("a refusal", locks.lock("refused")).await;
        refused.expect_err("etcd is out of reach");
    }
    proxy.accept_again().expect("the same port");
    let back = logged(&proxy.endpoint(), "etcd.back", 1).await;
    assert!(back[0].contains("refused=3"), "{back:?}");
    assert!(back[0].contains("lasted="), "{back:?}");
    let lines = logs::about(&proxy.endpoint());
    let outage = lines.iter().filter(|line| !line.contains("etcd.version"));
    assert_eq!(outage.count(), 2, "{lines:#?}");
}

#[limit::test]
async fn bodies_that_a_shutdown_cuts_off_are_one_line() {
    logs::collect();
    let (_, [locks]) = Corner::with_engines().await;
    let bodies = all_inside(|id, inside| cut_off(locks.clone(), id, inside)).await;
    let drained = within("the shutdown", locks.shutdown(Duration::ZERO)).await;
    assert_eq!(drained.cut_off(), TOGETHER, "{drained}");
    all_lost(bodies, LossCause::Shutdown).await;
    let lines = logs::about("cut-off-together/<id>");
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(lines[0].contains("code=\"shutdown.cut_off\""), "{lines:?}");
    assert!(lines[0].contains(&format!("({TOGETHER})")), "{lines:?}");
}

#[limit::test]
async fn numbers_of_permits_that_differ_are_one_line() {
    logs::collect();
    let (_, [ours, other]) = Corner::with_engines().await;
    let held = other.lock("limited-differently/7").permits(8);
    let _held = take("a permit", held).await;
    for _ in 0..2 {
        let refused = within("one try", limited(&ours, 7)).await;
        assert_matches!(refused, Err(LockError::Held { .. }));
    }
    let lines = logged("limited-differently/<id>", "lock.permits_differ", 1).await;
    assert_eq!(lines.len(), 1, "{lines:?}");
    for part in ["permits=1", "theirs=8", "::limited"] {
        assert!(lines[0].contains(part), "no `{part}` in {}", lines[0]);
    }
}
