//! `reentrant`: a lock that the task holds already is used again, and belongs to the body that took it.

use std::future::{Future, pending, poll_fn};
use std::task::Poll;
use std::time::Duration;

use etcd_locked::{LockError, LockGuard, Locks, LossCause, Token, current, etcd_locked};
use tokio::sync::{Barrier, Notify};

use crate::corner::{Corner, pass};
use crate::limit::{run, within};

const PATIENCE: Duration = Duration::from_secs(5);

fn inside() -> (String, Token) {
    let lock = current().expect("inside");
    assert!(lock.is_held());
    let name = lock.name().text().expect("held, hence valid");
    (name.to_owned(), lock.token())
}

#[etcd_locked("orders/<id>", locks = locks, wait = "5s", reentrant)]
async fn order(locks: &Locks, id: u64) -> Result<(String, Token), LockError> {
    tokio::task::yield_now().await;
    Ok(inside())
}

#[etcd_locked("orders/<id>", locks = locks)]
async fn outer(
    locks: &Locks,
    id: u64,
    then: impl AsyncFnOnce() -> Result<(), LockError>,
) -> Result<(), LockError> {
    then().await?;
    assert!(current().is_some_and(|lock| lock.is_held()));
    Ok(())
}

#[test]
fn the_lock_is_used_again_without_a_word_to_etcd_and_stays() {
    run(async {
        let corner = Corner::new().await;
        let (mine, theirs) = (corner.locks().await, corner.locks().await);
        let body = async || {
            let outer = inside();
            let before = corner.revision().await;
            for _ in 0..3 {
                assert_eq!(order(&mine, 7).await?, outer);
            }
            assert_eq!(corner.changes_after(before).await, 0);
            // The end of the inner ones has freed nothing.
            let refused = theirs.lock("orders/7").try_once().await;
            assert!(
                matches!(refused, Err(LockError::Held { .. })),
                "{refused:?}"
            );
            // Another name is taken as always.
            assert_eq!(order(&mine, 8).await?.0, "orders/8");
            Ok(())
        };
        within("the calls", outer(&mine, 7, body)).await.unwrap();
        pass("the next lock", theirs.lock("orders/7")).await;
        // Nor does it do without one.
        assert_eq!(order(&mine, 7).await.unwrap().0, "orders/7");
        corner.until_empty().await;
    });
}

#[test]
fn by_hand_too() {
    run(async {
        let corner = Corner::new().await;
        let locks = corner.locks().await;
        let body = async || {
            let again = locks.lock("orders/7").reentrant().await?;
            assert_eq!(
                (again.name().text(), again.token()),
                (Some("orders/7"), inside().1)
            );
            assert_eq!(again.hold(async { inside() }).await?, inside());
            again.release().await?;
            drop(locks.lock("orders/7").reentrant().await?);
            // A limit is that of what runs under the inner one.
            let limited = locks.lock("orders/7").at_most(Duration::from_millis(50));
            let limited = limited.reentrant().await?;
            let ended = limited.hold(pending::<()>()).await;
            assert!(
                matches!(ended, Err(LockError::HoldLimit { .. })),
                "{ended:?}"
            );
            Ok(())
        };
        within("the calls", outer(&locks, 7, body)).await.unwrap();
        corner.until_empty().await;
    });
}

#[etcd_locked("orders/<id>", locks = locks, on_lost = "continue")]
async fn lost(locks: &Locks, id: u64, entered: &Notify) -> Result<LossCause, LockError> {
    let inner = locks.lock(format!("orders/{id}")).reentrant().await?;
    entered.notify_one();
    match inner.hold(pending::<()>()).await {
        Err(LockError::Lost { cause, .. }) => {
            assert!(!inner.is_held());
            assert_eq!(inner.lost().await, cause);
            assert!(matches!(inner.release().await, Err(LockError::Lost { .. })));
            // Nor is what is lost taken for held.
            let refused = order(locks, id).await;
            assert!(
                matches!(refused, Err(LockError::Lost { .. })),
                "{refused:?}"
            );
            Ok(cause)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_the_outer_loses_is_lost_to_the_inner() {
    run(async {
        let corner = Corner::new().await;
        let locks = corner.locks().await;
        let entered = Notify::new();
        let operator = async {
            entered.notified().await;
            let key = corner.contenders("orders/7").await[0].clone();
            corner.client.clone().delete(key.text, None).await.unwrap();
        };
        let call = lost(&locks, 7, &entered);
        let (cause, ()) = within("the loss", async { tokio::join!(call, operator) }).await;
        assert_eq!(cause.unwrap(), LossCause::Deleted);
        corner.until_empty().await;
    });
}

#[etcd_locked("orders/<id>", locks = locks)]
async fn let_out(locks: &Locks, id: u64) -> Result<(LockGuard, etcd_locked::Current), LockError> {
    let held = locks.lock(format!("orders/{id}")).reentrant().await?;
    let seen = held.hold(async { current().expect("inside") }).await?;
    assert!(seen.is_held(), "as long as the outer body lasts");
    Ok((held, seen))
}

#[test]
fn what_outlives_the_body_that_took_it_is_lost() {
    run(async {
        let corner = Corner::new().await;
        let locks = corner.locks().await;
        let (held, seen) = let_out(&locks, 7).await.unwrap();
        assert!(!held.is_held() && !seen.is_held());
        let mut ran = false;
        let late = held.hold(async { ran = true }).await;
        assert!(
            matches!(
                late,
                Err(LockError::Lost {
                    cause: LossCause::Released,
                    ..
                })
            ),
            "{late:?}"
        );
        assert!(!ran, "a body ran under a lock of the past");
        pass("the next lock", locks.lock("orders/7")).await;
        drop(held);
        corner.until_empty().await;
    });
}

#[etcd_locked("orders/<id>", locks = locks, wait = "200ms", reentrant)]
async fn meet(locks: &Locks, id: u64, barrier: &Barrier) -> Result<(), LockError> {
    barrier.wait().await;
    Ok(())
}

#[test]
fn joined_branches_share_it_and_a_spawned_task_does_not() {
    run(async {
        let corner = Corner::new().await;
        let locks = corner.locks().await;
        let body = async || {
            let barrier = Barrier::new(2);
            let (one, two) = tokio::join!(meet(&locks, 7, &barrier), meet(&locks, 7, &barrier));
            one.and(two)?;
            let locks = locks.clone();
            let spawned = tokio::spawn(async move { meet(&locks, 7, &Barrier::new(1)).await });
            let spawned = spawned.await.expect("no panic");
            assert!(
                matches!(spawned, Err(LockError::Timeout { .. })),
                "{spawned:?}"
            );
            Ok(())
        };
        within("the calls", outer(&locks, 7, body)).await.unwrap();
        corner.until_empty().await;
    });
}

/// The names with their tokens.
fn tokens(held: &LockGuard) -> Vec<(String, Token)> {
    let text = |name: &etcd_locked::Name| name.text().expect("held, hence valid").to_owned();
    held.tokens()
        .map(|(name, token)| (text(name), token))
        .collect()
}

#[test]
fn of_several_names_all_are_held_or_none() {
    run(async {
        let corner = Corner::new().await;
        let locks = corner.locks().await;
        let both = || locks.lock("b").and("a").and("b").reentrant();
        // None: taken as always.
        let held = both().await.unwrap();
        assert_eq!(corner.contenders("a").await.len(), 1);
        // All, by one call: in the order of the inner.
        let inner = async {
            let again = locks.lock("a").and("b").reentrant().await.unwrap();
            let mut turned = tokens(&again);
            turned.reverse();
            assert_eq!(turned, tokens(&held));
            assert_eq!(
                tokens(&locks.lock("a").reentrant().await.unwrap()),
                [turned[1].clone()]
            );
        };
        held.hold(inner).await.unwrap();
        held.release().await.unwrap();
        // All, by several calls, one of which has used another's again.
        let a = locks.lock("a").await.unwrap();
        let inner = async {
            let again = locks.lock("a").reentrant().await.unwrap();
            let inner = async {
                let b = locks.lock("b").await.unwrap();
                let all = b.hold(async { both().await.unwrap() }).await.unwrap();
                assert_eq!(tokens(&all), [tokens(&b), tokens(&a)].concat());
                assert!(all.is_held());
                b.release().await.unwrap();
                assert!(!all.is_held() && a.is_held(), "one of them is gone");
            };
            again.hold(inner).await.unwrap();
            // Some: refused, and nothing is taken.
            let refused = within("the refusal", both()).await;
            let Err(LockError::SelfDeadlock { name }) = refused else {
                panic!("{refused:?}")
            };
            assert_eq!(name.text(), Some("a"));
        };
        a.hold(inner).await.unwrap();
        a.release().await.unwrap();
        corner.until_empty().await;
    });
}

#[test]
fn a_fence_that_the_inner_made_falls_with_the_outer() {
    run(async {
        let corner = Corner::new().await;
        let locks = corner.locks().await;
        let held = locks.lock("orders/7").await.unwrap();
        let next = tokio::spawn({
            let locks = locks.clone();
            async move { locks.lock("orders/7").await }
        });
        let inner = async { locks.lock("orders/7").reentrant().await.unwrap().fence() };
        let fence = held.hold(inner).await.unwrap();
        let guarded = || {
            let put = etcd_locked::etcd_client::TxnOp::get(corner.prefix.as_str(), None);
            let txn = etcd_locked::etcd_client::Txn::new()
                .when([fence.clone()])
                .and_then([put]);
            let mut client = corner.client.clone();
            async move { client.txn(txn).await.expect("etcd answers").succeeded() }
        };
        assert!(guarded().await);
        held.release().await.unwrap();
        let next = within("the next", next).await.unwrap().unwrap();
        assert_eq!(next.token().handover(), 0, "the key was handed on");
        assert!(!guarded().await);
        next.release().await.unwrap();
    });
}

/// What is held needs no waiting: neither `wait` nor `deadline` nor a shutdown is in the way.
#[test]
fn what_is_held_is_there_at_once() {
    run(async {
        let corner = Corner::new().await;
        let locks = corner.locks().await;
        let body = async || {
            let past = std::time::Instant::now();
            drop(locks.lock("orders/7").deadline(past).reentrant().await?);
            let shutdown = tokio::spawn({
                let locks = locks.clone();
                async move { locks.shutdown(PATIENCE).await }
            });
            within("the shutdown's beginning", async {
                let refused = || async {
                    let locks = locks.clone();
                    tokio::spawn(async move { locks.lock("orders/9").await.map(drop) }).await
                };
                while !matches!(refused().await, Ok(Err(LockError::ShuttingDown))) {}
            })
            .await;
            drop(locks.lock("orders/7").reentrant().await?);
            drop(shutdown);
            Ok(())
        };
        within("the call", outer(&locks, 7, body)).await.unwrap();
        corner.until_empty().await;
    });
}

#[etcd_locked("orders/<id>", locks = locks, reentrant)]
async fn again(locks: &Locks, id: u64, polled: &Notify) -> Result<(), LockError> {
    polled.notify_one();
    tokio::task::yield_now().await;
    unreachable!("polled outside the body whose lock it uses")
}

#[test]
fn a_call_that_is_moved_out_of_the_body_around_is_not_polled_under_its_lock() {
    run(async {
        let corner = Corner::new().await;
        let locks = corner.locks().await;
        let (mine, polled) = (locks.clone(), Notify::new());
        let mut moved = Box::pin(async move { again(&mine, 7, &polled).await });
        let body = async || {
            // It has the lock, and has begun; then it goes on elsewhere, beside this body.
            assert!(poll_fn(|cx| Poll::Ready(moved.as_mut().poll(cx).is_pending())).await);
            let answer = within("the other task", tokio::spawn(moved)).await.unwrap();
            let released = matches!(
                answer,
                Err(LockError::Lost {
                    cause: LossCause::Released,
                    ..
                })
            );
            assert!(released, "{answer:?}");
            Ok(())
        };
        within("the calls", outer(&locks, 7, body)).await.unwrap();
    });
}
