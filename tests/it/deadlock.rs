//! Deadlock detection: exactly one of the tasks in a cycle gets `Deadlock`, within seconds.

use std::sync::Arc;
use std::time::Duration;

use etcd_locked::{LockError, Locks, etcd_locked};
use tokio::sync::Barrier;

use crate::corner::Corner;
use crate::limit::{self, within_time};

/// Time within which a cycle across processes is broken.
const SOON: Duration = Duration::from_secs(12);

#[etcd_locked("accounts/<first>", locks = &locks, wait = "forever")]
async fn outer(
    locks: Locks,
    first: &str,
    second: &str,
    both: Arc<Barrier>,
) -> Result<(), LockError> {
    both.wait().await;
    inner(&locks, second).await
}

#[etcd_locked("accounts/<name>", locks = locks, wait = "forever")]
async fn inner(locks: &Locks, name: &str) -> Result<(), LockError> {
    let _ = name;
    Ok(())
}

#[limit::test]
async fn detects_cycle_across_engines() {
    let (corner, [one, other]) = Corner::with_engines().await;
    let both = Arc::new(Barrier::new(2));
    let one = tokio::spawn(outer(one, "alice", "bob", both.clone()));
    let other = tokio::spawn(outer(other, "bob", "alice", both));
    let ends = within_time(SOON, "the end of both", async { [one.await, other.await] }).await;
    let ends = ends.map(|ended| ended.expect("no panic"));
    let ([Ok(()), Err(error)] | [Err(error), Ok(())]) = ends else { panic!("{ends:?}") };
    assert!(error.is_retryable());
    let LockError::Deadlock { name, cycle, .. } = &error else { panic!("{error:?}") };
    assert_eq!(name.template(), Some("accounts/<name>"));
    let holders: Vec<_> = cycle.holders().collect();
    assert_eq!(holders.len(), 2, "the other, and itself: {cycle:?}");
    for holder in holders {
        assert_eq!(holder.template(), Some("accounts/<first>"));
        assert_eq!(holder.pid(), std::process::id());
        assert!(holder.function().unwrap().ends_with("::outer"));
    }
    let (shown, whole) = (error.to_string(), format!("{error:?}"));
    assert!(!shown.contains("alice") && !shown.contains("bob"), "{shown}");
    assert!(shown.contains("accounts/<first>"), "{shown}");
    assert!(whole.contains("accounts/alice") && whole.contains("accounts/bob"), "{whole}");
    corner.until_empty().await;
}
