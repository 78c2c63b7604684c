//! Nested waiters: hundreds of tasks that each hold a lock of their own and wait for one hot name.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use etcd_locked::LockError;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::corner::{Corner, connect};
use crate::etcd::Etcd;
use crate::limit::{self, within};

/// Tasks of each of the two engines.
const TASKS: u64 = 100;
/// Long enough that a call waits for more than a second, after which it has a key of its own.
const BODY: Duration = Duration::from_millis(8);
/// By then every task waits by a key of its own.
const LEAD: Duration = Duration::from_millis(1_500);
const WINDOW: Duration = Duration::from_millis(4_500);
/// Short, so that an engine that no longer renews loses its locks within the test.
const TTL: Duration = Duration::from_secs(6);
/// Comparisons: where the machine stands still, it does so in one of the two windows only.
const ROUNDS: usize = 3;

/// How many bodies run within the window, of tasks that hold a lock of their own or none; every call must be served.
async fn served(corner: &Corner, outer: bool) -> u64 {
    let (served, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut tasks = JoinSet::new();
    let mut engines = Vec::new();
    for engine in 0..2 {
        let locks = connect(corner.config().ttl(TTL)).await;
        for task in 0..TASKS {
            let (locks, served, over) = (locks.clone(), served.clone(), over.clone());
            tasks.spawn(async move {
                let repeat = async {
                    while !over.load(Ordering::Relaxed) {
                        let hot = locks.lock("hot").wait_forever().await?;
                        // The last waiters are not to be waited for.
                        if !over.load(Ordering::Relaxed) {
                            hot.hold(sleep(BODY)).await?;
                        }
                        hot.release().await?;
                        served.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok::<_, LockError>(())
                };
                if outer {
                    let own = locks.lock(format!("own/{engine}/{task}")).await?;
                    own.hold(repeat).await??;
                    own.release().await
                } else {
                    repeat.await
                }
            });
        }
        engines.push(locks);
    }
    sleep(LEAD).await;
    let before = served.load(Ordering::Relaxed);
    sleep(WINDOW).await;
    let served = served.load(Ordering::Relaxed) - before;
    over.store(true, Ordering::Relaxed);
    for ended in within("the end of every call", tasks.join_all()).await {
        ended.expect("every call is served");
    }
    for locks in engines {
        within("the shutdown", locks.shutdown(Duration::ZERO)).await;
    }
    served
}

#[limit::test]
async fn tasks_that_hold_a_lock_are_served_as_fast_as_others() {
    // Its own: so many writes would hold up those of all other tests.
    let etcd = Etcd::start().await;
    let corner = Corner::of(&etcd).await;
    let (mut plain, mut nested) = (0, 0);
    for _ in 0..ROUNDS {
        plain = served(&corner, false).await;
        nested = served(&corner, true).await;
        if 2 * nested >= plain {
            break;
        }
    }
    assert!(2 * nested >= plain, "{nested} of {plain}");
    corner.until_empty().await;
}
