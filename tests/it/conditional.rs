//! `when`: the condition is evaluated before all else, and the lock is taken only if it holds.

use std::sync::Mutex;

use etcd_locked::{LockError, LockName, Locks, Name, current, etcd_locked};

use crate::corner::{Corner, take};
use crate::limit::run;

fn text() -> Option<String> {
    current().map(|it| it.name().text().expect("held, hence valid").to_owned())
}

#[etcd_locked("orders/<id>", locks = locks, wait = "none", when = *total > 100)]
async fn order(locks: &Locks, id: u64, total: &u64) -> Result<Option<String>, LockError> {
    tokio::task::yield_now().await;
    Ok(text())
}

#[test]
fn without_the_condition_nothing_is_taken() {
    run(async {
        let corner = Corner::new().await;
        let (mine, theirs) = (corner.locks().await, corner.locks().await);
        let held = take("their lock", theirs.lock("orders/7")).await;
        assert_eq!(order(&mine, 7, &100).await.unwrap(), None);
        let refused = order(&mine, 7, &101).await;
        assert!(
            matches!(refused, Err(LockError::Held { .. })),
            "{refused:?}"
        );
        held.release().await.unwrap();
        let locked = order(&mine, 7, &101).await.unwrap();
        assert_eq!(locked.as_deref(), Some("orders/7"));
        corner.until_empty().await;
    });
}

/// A call whose condition is false, so that it needs no engine.
#[etcd_locked("orders/<id>", when = false, at_most = "1ms", on_lost = "continue")]
async fn never(id: u64) -> Result<u64, LockError> {
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    Ok(id)
}

#[etcd_locked("outer", locks = locks)]
async fn outer(locks: &Locks) -> Result<Option<String>, LockError> {
    order(locks, 7, &0).await
}

#[test]
fn without_the_condition_the_callers_lock_stays_current() {
    run(async {
        let locks = Corner::new().await.locks().await;
        assert_eq!(outer(&locks).await.unwrap().as_deref(), Some("outer"));
    });
}

#[test]
fn without_the_condition_no_engine_is_needed() {
    // This process has no engine of its own; each test has one.
    run(async {
        assert!(etcd_locked::lock("orders/7").await.is_err());
        assert_eq!(never(7).await.unwrap(), 7);
    });
}

/// A name that records when it is evaluated.
struct Spoken<'a>(&'a Mutex<Vec<&'static str>>, &'static str);

impl LockName for Spoken<'_> {
    type Held = Name;
    type Kept = Name;

    fn lock_name(&self) -> Name {
        say(self.0, self.1);
        self.1.lock_name()
    }

    fn keep(self, name: &Name) -> Name {
        name.clone()
    }
}

fn say(said: &Mutex<Vec<&'static str>>, what: &'static str) {
    said.lock().expect("not poisoned").push(what);
}

#[etcd_locked(
    Spoken(said, "first"),
    Spoken(said, "second"),
    deadline = {
        say(said, "deadline");
        std::time::Instant::now() + std::time::Duration::from_secs(20)
    },
    locks = {
        say(said, "locks");
        locks
    },
    when = {
        say(said, "when");
        locked
    }
)]
async fn in_order(
    locks: &Locks,
    said: &Mutex<Vec<&'static str>>,
    locked: bool,
) -> Result<(), LockError> {
    say(said, "body");
    Ok(())
}

#[test]
fn the_condition_is_evaluated_before_all_else() {
    run(async {
        let locks = Corner::new().await.locks().await;
        for (locked, order) in [
            (false, &["when", "body"][..]),
            (
                true,
                &["when", "first", "second", "locks", "deadline", "body"],
            ),
        ] {
            let said = Mutex::default();
            in_order(&locks, &said, locked).await.unwrap();
            assert_eq!(said.into_inner().unwrap(), order);
        }
    });
}
