//! Several names on one call: the call takes all or none, each once, and such calls never deadlock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use etcd_locked::{LockError, Locks, LossCause, current, etcd_locked};
use tokio::task::{JoinSet, yield_now};

use crate::corner::{Corner, pass, take};
use crate::limit::{self, within};

#[etcd_locked("accounts/<from>", "accounts/<to>", locks = locks, wait = "forever")]
async fn transfer(locks: &Locks, from: usize, to: usize, bank: &Bank) -> Result<(), LockError> {
    bank.visit(&[from, to]).await;
    Ok(())
}

/// Accounts, and whether a body is at them.
#[derive(Default)]
struct Bank([AtomicBool; 5]);

impl Bank {
    async fn visit(&self, accounts: &[usize]) {
        for account in accounts {
            let met = self.0[*account].swap(true, Ordering::SeqCst);
            assert!(!met, "two at account {account}");
        }
        yield_now().await;
        for account in accounts {
            self.0[*account].store(false, Ordering::SeqCst);
        }
    }
}

#[limit::test]
async fn opposite_transfers_never_wait_for_each_other() {
    let corner = Corner::new().await;
    let bank = Arc::new(Bank::default());
    let mut tasks = JoinSet::new();
    for engine in 0..3_usize {
        let locks = corner.locks().await;
        for task in 0..8 {
            let (locks, bank) = (locks.clone(), bank.clone());
            tasks.spawn(async move {
                for round in 0..6 {
                    let from = (engine + task + round) % 5;
                    let to = (from + 1 + (task * 3 + round) % 4) % 5;
                    transfer(&locks, from, to, &bank).await.expect("served");
                    if task == 0 {
                        let one = locks.lock(format!("accounts/{to}")).wait_forever();
                        let held = one.await.expect("served");
                        held.hold(bank.visit(&[to])).await.expect("not lost");
                        held.release().await.expect("released");
                    }
                }
            });
        }
    }
    while let Some(ended) = within("the next task's end", tasks.join_next()).await {
        ended.expect("no panic");
    }
    corner.until_empty().await;
}

#[limit::test]
async fn a_group_takes_all_names_or_none() {
    let (corner, [ours, other]) = Corner::with_engines().await;
    let taken = other.lock("accounts/2").await.unwrap();
    let both = || ours.lock("accounts/1").and("accounts/2");

    let late = within("the end of the wait", both().wait(Duration::from_secs(3))).await;
    let Err(LockError::Timeout { name, holder, .. }) = late else {
        panic!("{late:?}")
    };
    assert_eq!(
        format!("{name:?}"),
        r#""accounts/2""#,
        "the one that is taken"
    );
    assert_eq!(holder.expect("a record").service(), "tests");
    corner.until_contenders("accounts/1", 0).await;
    corner.until_contenders("accounts/2", 1).await;

    let refused = within("the one try", both().try_once()).await;
    let Err(LockError::Held { name, .. }) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(format!("{name:?}"), r#""accounts/2""#);
    assert_eq!(corner.contenders("accounts/1").await, []);

    taken.release().await.unwrap();
    let held = take("both", both().try_once()).await;
    let (one, two) = (
        corner.contenders("accounts/1").await,
        corner.contenders("accounts/2").await,
    );
    assert_eq!(one[0].created, two[0].created, "put in one transaction");
    held.release().await.unwrap();
    corner.until_empty().await;
}

#[limit::test]
async fn each_name_has_its_token() {
    let (_, [locks]) = Corner::with_engines().await;
    let held = locks
        .lock("accounts/1")
        .and("accounts/2")
        .and("accounts/1")
        .await
        .unwrap();
    let texts: Vec<_> = held.tokens().map(|(name, _)| format!("{name:?}")).collect();
    assert_eq!(
        texts,
        [r#""accounts/1""#, r#""accounts/2""#],
        "equal names once"
    );
    assert_eq!(
        held.tokens().next().map(|(_, token)| token),
        Some(held.token())
    );
    let before: Vec<_> = held.tokens().map(|(_, token)| token).collect();
    held.release().await.unwrap();

    let again = locks.lock("accounts/2").and("accounts/1").await.unwrap();
    let after: Vec<_> = again.tokens().map(|(_, token)| token).collect();
    assert!(before[1] < after[0] && before[0] < after[1]);
}

#[etcd_locked("accounts/<from>", "accounts/<to>", locks = locks)]
async fn names(locks: &Locks, from: u8, to: u8) -> Result<Vec<String>, LockError> {
    let current = current().expect("it runs under its locks");
    assert_eq!(current.template(), Some("accounts/<from>"));
    Ok(current
        .tokens()
        .map(|(name, _)| format!("{name:?}"))
        .collect())
}

#[limit::test]
async fn a_body_sees_all_its_names() {
    let locks = Corner::new().await.locks().await;
    let texts = names(&locks, 1, 2).await.unwrap();
    assert_eq!(texts, [r#""accounts/1""#, r#""accounts/2""#]);
    assert_eq!(names(&locks, 3, 3).await.unwrap(), [r#""accounts/3""#]);
}

#[limit::test]
async fn loss_of_one_name_is_loss_of_all() {
    let (corner, [locks]) = Corner::with_engines().await;
    let held = locks.lock("accounts/1").and("accounts/2").await.unwrap();
    // The engine watches the key once the lock has been held for a second.
    corner.take_away("accounts/2").await;
    assert_eq!(within("the loss", held.lost()).await, LossCause::Deleted);
    drop(held);
    corner.until_empty().await;
    pass("both", locks.lock("accounts/1").and("accounts/2")).await;
}

#[limit::test]
async fn a_nested_group_with_a_held_name_is_refused() {
    let (_, [locks]) = Corner::with_engines().await;
    let held = locks.lock("accounts/1").and("accounts/2").await.unwrap();
    let nested = async { locks.lock("accounts/3").and("accounts/2").await };
    let refused = held.hold(nested).await.unwrap();
    let Err(LockError::SelfDeadlock { name }) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(format!("{name:?}"), r#""accounts/2""#);
}

#[limit::test]
async fn too_many_names_are_refused() {
    let locks = Corner::new().await.locks().await;
    let all = |count: usize| {
        locks
            .lock("a/0")
            .and_all((1..count).map(|n| format!("a/{n}")))
    };
    pass("32 names", all(32)).await;
    let refused = all(33).await;
    assert_matches!(refused, Err(LockError::Config { .. }));
}
