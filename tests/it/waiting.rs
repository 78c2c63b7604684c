//! Refused calls: what they return instead of their body's result, with `on_held`, `map_err` and `on_error`.

use etcd_locked::{LockError, Locks, etcd_locked};

use crate::corner::Corner;
use crate::limit::{self, within};

#[etcd_locked("jobs/<job>", locks = locks, wait = "none", on_held = "skip")]
async fn unit(locks: &Locks, job: &str, ran: &mut bool) {
    *ran = true;
}

#[etcd_locked("jobs/<job>", locks = locks, wait = "none", on_held = "skip")]
async fn option(locks: &Locks, job: &str) -> Option<u8> {
    Some(7)
}

#[etcd_locked("jobs/<job>", locks = locks, wait = "none", on_held = "skip")]
async fn result(locks: &Locks, job: &str) -> Result<Option<u8>, LockError> {
    Ok(Some(7))
}

#[etcd_locked("jobs/<job>", locks = locks, wait = "3s", on_held = "skip")]
async fn after_a_while(locks: &Locks, job: &str) -> Option<u8> {
    Some(7)
}

#[etcd_locked("jobs/<job>", locks = locks, wait = "none", map_err = |error| error.to_string())]
async fn mapped(locks: &Locks, job: &str) -> Result<u8, String> {
    Ok(7)
}

#[etcd_locked("jobs/<job>", locks = locks, wait = "none", on_error = |_| u8::from(job.is_empty()))]
async fn handled(locks: &Locks, job: &str) -> u8 {
    7
}

#[limit::test]
async fn a_skipped_call_returns_without_running() {
    let (corner, [locks]) = Corner::with_engines().await;
    let held = corner.locks().await.lock("jobs/nightly").await.unwrap();
    let mut ran = false;
    within("a skipped ()", unit(&locks, "nightly", &mut ran)).await;
    assert!(!ran, "the body ran although the name was taken");
    assert_eq!(within("a skipped Option", option(&locks, "nightly")).await, None);
    assert_eq!(within("a skipped Result", result(&locks, "nightly")).await.unwrap(), None);
    assert_eq!(within("a skipped wait", after_a_while(&locks, "nightly")).await, None);
    held.release().await.unwrap();
    // This call may wait until the key of the skipped wait is deleted.
    assert_eq!(within("the run after a while", after_a_while(&locks, "nightly")).await, Some(7));
    within("the run of ()", unit(&locks, "nightly", &mut ran)).await;
    assert!(ran, "the body did not run although the name was free");
    assert_eq!(within("the run of Option", option(&locks, "nightly")).await, Some(7));
    assert_eq!(within("the run of Result", result(&locks, "nightly")).await.unwrap(), Some(7));
    // Other errors are not skipped. If the return type has no error, they are only logged.
    assert_matches!(result(&locks, "").await, Err(LockError::InvalidName { .. }));
    assert_eq!(option(&locks, "").await, None);
}

#[limit::test]
async fn errors_arrive_in_the_callers_own_type() {
    let (corner, [locks]) = Corner::with_engines().await;
    assert_eq!(within("a mapped call", mapped(&locks, "nightly")).await, Ok(7));
    assert_eq!(within("a handled call", handled(&locks, "nightly")).await, 7);
    let _held = corner.locks().await.lock("jobs/nightly").await.unwrap();
    let text = within("a mapped refusal", mapped(&locks, "nightly")).await.unwrap_err();
    assert!(text.contains("jobs/<job>"), "{text}");
    assert_eq!(within("a handled refusal", handled(&locks, "nightly")).await, 0);
}
