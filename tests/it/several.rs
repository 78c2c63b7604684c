//! Several names on one call: the call takes all or none, each once.

use etcd_locked::{LockError, Locks, current, etcd_locked};

use crate::corner::{Corner, pass, take};
use crate::limit::{self, within};

#[limit::test]
async fn a_group_takes_all_names_or_none() {
    let (corner, [ours, other]) = Corner::with_engines().await;
    let taken = other.lock("accounts/2").await.unwrap();
    let both = || ours.lock("accounts/1").and("accounts/2");

    let refused = within("the one try", both().try_once()).await;
    let Err(LockError::Held { name, holder, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(format!("{name:?}"), r#""accounts/2""#, "the one that is taken");
    assert_eq!(holder.expect("a record").service(), "tests");
    assert_eq!(corner.contenders("accounts/1").await, []);

    taken.release().await.unwrap();
    let held = take("both", both().try_once()).await;
    let (one, two) = (corner.contenders("accounts/1").await, corner.contenders("accounts/2").await);
    assert_eq!(one[0].created, two[0].created, "put in one transaction");
    held.release().await.unwrap();
    let reads = take("both, to read", both().shared()).await;
    pass("one, to read", other.lock("accounts/2").shared()).await;
    let refused = within("a writer", other.lock("accounts/1").try_once()).await;
    assert_matches!(refused, Err(LockError::Held { .. }));
    reads.release().await.unwrap();
    corner.until_empty().await;
}

#[etcd_locked("accounts/<from>", "accounts/<to>", locks = locks)]
async fn names(locks: &Locks, from: u8, to: u8) -> Result<Vec<String>, LockError> {
    let current = current().expect("it runs under its locks");
    assert_eq!(current.template(), Some("accounts/<from>"));
    Ok(current.tokens().map(|(name, _)| format!("{name:?}")).collect())
}

#[limit::test]
async fn a_body_sees_all_its_names() {
    let locks = Corner::new().await.locks().await;
    let texts = names(&locks, 1, 2).await.unwrap();
    assert_eq!(texts, [r#""accounts/1""#, r#""accounts/2""#]);
    assert_eq!(names(&locks, 3, 3).await.unwrap(), [r#""accounts/3""#]);
}

#[limit::test]
async fn a_nested_group_with_a_held_name_is_refused() {
    let (_, [locks]) = Corner::with_engines().await;
    let held = locks.lock("accounts/1").and("accounts/2").await.unwrap();
    let nested = async { locks.lock("accounts/3").and("accounts/2").await };
    let refused = held.hold(nested).await.unwrap();
    let Err(LockError::SelfDeadlock { name }) = refused else { panic!("{refused:?}") };
    assert_eq!(format!("{name:?}"), r#""accounts/2""#);
}

#[limit::test]
async fn too_many_names_are_refused() {
    let locks = Corner::new().await.locks().await;
    let all = |count: usize| locks.lock("a/0").and_all((1..count).map(|n| format!("a/{n}")));
    pass("32 names", all(32)).await;
    let refused = all(33).await;
    assert_matches!(refused, Err(LockError::Config { .. }));
}
