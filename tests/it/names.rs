//! Lock names: values that cannot be one segment are refused, and names given at run time are checked.

use etcd_locked::{LockError, Locks, etcd_locked};

use crate::corner::{Corner, connect, pass, take};
use crate::limit::{self, within};

#[etcd_locked("files/<name>", locks = locks)]
async fn open(locks: &Locks, name: &str) -> Result<(), LockError> {
    Ok(())
}

#[limit::test]
async fn a_value_that_is_empty_or_too_long_is_refused() {
    let (corner, [locks]) = Corner::with_engines().await;
    let megabyte = "x".repeat(1 << 20);
    let escaped = "/".repeat(400); // three bytes each, once escaped
    for value in ["", &megabyte, &escaped, &"x".repeat(1025 - "files/".len())] {
        let error = within("a refusal", open(&locks, value)).await.unwrap_err();
        assert_matches!(error, LockError::InvalidName { .. });
        assert!(!error.is_retryable());
        assert!(error.to_string().contains("files/<name>"), "{error}");
        assert!(error.to_string().len() < 1_000, "the message repeats the value");
    }
    let longest = "x".repeat(1024 - "files/".len());
    open(&locks, &longest).await.expect("1024 bytes are a name");
    assert_eq!(corner.keys(&corner.prefix).await, []);
}

#[limit::test]
async fn a_name_given_at_run_time_is_checked() {
    let (corner, [locks]) = Corner::with_engines().await;
    let longest = "x".repeat(1024);
    for name in
        ["orders/42", "orders", "a/b/c/d", "a.b_c~d:e@f=g+h-i", "50%25", "a%2Fb", "..", &longest]
    {
        let held = within("a lock", locks.lock(name))
            .await
            .unwrap_or_else(|error| panic!("{name:?}: {error:?}"));
        assert_eq!(corner.contenders(name).await.len(), 1, "{name:?}");
        // The name that a guard returns can be locked again.
        let again = held.name().clone();
        held.release().await.unwrap();
        pass("the same lock", locks.lock(again)).await;
    }
    let too_long = "x".repeat(1025);
    let bad = "/ /orders orders/ orders//42 a%2f a%2 a% %zz %s ä a\0 a\n a,b a*".split(' ');
    let bad = bad.chain(["", "orders/ 42", &too_long]);
    for name in bad {
        let error = within("a refusal", locks.lock(name)).await.unwrap_err();
        assert!(matches!(error, LockError::InvalidName { .. }), "{name:?}: {error:?}");
    }
    let template = locks.lock("orders/<id>").await.unwrap_err();
    assert_matches!(template, LockError::Config { .. });
    assert!(
        template.to_string().contains("only a lone string literal"),
        "`{template}` does not say where templates stand"
    );
    assert_eq!(corner.keys(&corner.prefix).await, []);
}

#[limit::test]
async fn a_run_time_name_is_shown_by_its_template_or_by_show_names() {
    let (corner, [quiet]) = Corner::with_engines().await;
    let open = connect(corner.config().show_names(true)).await;
    let held = take("a free name", quiet.lock("days/monday").template("days/<day>")).await;
    for (call, shown) in [
        (quiet.lock("days/monday"), "(run-time name)"),
        (quiet.lock("days/monday").template("days/<day>"), "days/<day>"),
        (open.lock("days/monday"), "days/monday"),
        (open.lock("days/monday").template("days/<day>"), "days/<day>"),
    ] {
        let error = within("a try", call.try_once()).await.unwrap_err();
        assert!(error.to_string().starts_with(&format!("lock `{shown}` is held")), "{error}");
        // Two names are equal if their texts are, however they are displayed.
        assert_eq!(error.name(), Some(held.name()));
    }
    assert_eq!(quiet.status().held()[0].template(), Some("days/<day>"));
}
