//! `wait`: the time that a call waits, and its answer when that time is over.

use std::time::{Duration, Instant};

use etcd_locked::{LockError, Locks, etcd_locked};

use crate::corner::{Corner, connect, served, spawn};
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

#[etcd_locked("jobs/<job>", locks = locks, wait = "3s")]
async fn briefly(locks: &Locks, job: &str) -> Result<u8, LockError> {
    Ok(7)
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
async fn a_try_fails_at_once_and_names_the_holder() {
    let (corner, [mine, theirs]) = Corner::with_engines().await;
    let _held = theirs.lock("jobs/nightly").await.unwrap();
    // Refused by etcd, then refused inside the process.
    for locks in [mine, theirs] {
        let started = Instant::now();
        let refused = within("a refusal", locks.lock("jobs/nightly").try_once()).await;
        let Err(error @ LockError::Held { .. }) = refused else { panic!("{refused:?}") };
        assert!(started.elapsed() < Duration::from_secs(8), "a try took {:?}", started.elapsed());
        assert!(error.is_retryable());
        let LockError::Held { holder, .. } = error else { unreachable!() };
        let holder = holder.expect("etcd has the holder's record");
        assert_eq!(holder.pid(), std::process::id());
    }
    // Neither refusal has left a key.
    assert_eq!(corner.contenders("jobs/nightly").await.len(), 1);
}

#[limit::test]
async fn a_wait_that_ends_names_the_holder_and_the_time() {
    let (corner, [mine, theirs]) = Corner::with_engines().await;
    let held = theirs.lock("jobs/nightly").await.unwrap();
    // In etcd's queue, then in the wait queue of the process.
    for locks in [&mine, &theirs] {
        let started = Instant::now();
        let refused = within("the end of the wait", briefly(locks, "nightly")).await;
        let elapsed = started.elapsed();
        let Err(LockError::Timeout { holder, waited, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(holder.expect("etcd has the holder's record").pid(), std::process::id());
        assert!(
            waited >= Duration::from_secs(3) && waited <= elapsed,
            "waited {waited:?} of {elapsed:?}"
        );
    }
    corner.until_contenders("jobs/nightly", 1).await;
    held.release().await.unwrap();
    assert_eq!(within("its admission", briefly(&mine, "nightly")).await.unwrap(), 7);
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
    // Other errors are not skipped. Without an error in the return type, only the log has them.
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

#[limit::test]
async fn a_wait_for_ever_outlasts_the_default() {
    let corner = Corner::new().await;
    let locks = connect(corner.config().wait(Duration::from_millis(100))).await;
    let held = corner.locks().await.lock("jobs/nightly").await.unwrap();
    let patient = spawn(locks.lock("jobs/nightly").wait_forever());
    corner.until_contenders("jobs/nightly", 2).await;
    // The configured default ends the wait of a call without `wait`. It waits behind the patient call of its process, whose
    // key stays.
    let refused = within("the end of the default wait", locks.lock("jobs/nightly")).await;
    assert_matches!(refused, Err(LockError::Timeout { .. }));
    assert!(!patient.is_finished());
    held.release().await.unwrap();
    served("the patient call's admission", patient).await;
}
