//! Time of a holder: other processes learn who has held a lock since when, also after a hand-over.

use std::time::{Duration, SystemTime};

use etcd_locked::{Holder, LockError, LockGuard, Locks};
use serde_json::Value;

use crate::corner::{Corner, Key, take};
use crate::limit::{self, within};
use crate::steps::queued;

const NAME: &str = "orders/7";

/// More than the wall clock's records are cut by.
const CUT: Duration = Duration::from_millis(5);

fn time(text: &str) -> SystemTime {
    humantime::parse_rfc3339(text).expect("RFC 3339")
}

/// Since when the owner holds the name, as its record says.
fn held_since(keys: &[Key]) -> Option<String> {
    let record: Value = serde_json::from_slice(&keys.first()?.value).ok()?;
    record["held_since"].as_str().map(str::to_owned)
}

/// Awaits that the record is about another hold than that one.
async fn until_described(corner: &Corner, before: Option<&str>) -> String {
    let below = corner.below(NAME);
    let new = |keys: &[Key]| held_since(keys).is_some_and(|since| Some(&*since) != before);
    let keys = corner.until("a record of the holder", &below, new).await;
    held_since(&keys).expect("a time")
}

/// Hands the lock over to the next call of the engine.
async fn hand_over(held: LockGuard, locks: &Locks) -> LockGuard {
    let token = held.token();
    let next = queued(locks.lock(NAME).wait_forever());
    let both = async { tokio::join!(held.release(), next) };
    let (released, next) = within("the hand-over", both).await;
    released.expect("a release that is confirmed");
    let next = next.expect("served");
    assert_eq!(next.token().revision(), token.revision());
    next
}

/// The holder that another process learns.
async fn named(theirs: &Locks) -> (Holder, String) {
    let refused = within("a try", theirs.lock(NAME).try_once()).await;
    let Err(error @ LockError::Held { .. }) = refused else {
        panic!("{refused:?}")
    };
    let text = error.to_string();
    match error {
        LockError::Held {
            holder: Some(holder),
            ..
        } => (holder, text),
        other => panic!("{other:?}"),
    }
}

#[limit::test]
async fn error_names_the_holders_time_after_a_hand_over() {
    let (corner, [mine, theirs]) = Corner::with_engines().await;
    let first = take("a free name", mine.lock(NAME)).await;
    let before = until_described(&corner, None).await;
    let handed_over = SystemTime::now();
    let second = hand_over(first, &mine).await;
    let described = until_described(&corner, Some(&before)).await;
    let (holder, text) = named(&theirs).await;
    let since = holder.held_since().expect("held for over a second");
    assert_eq!(since, described);
    assert!(text.contains(since), "{text}");
    assert!(time(since) + CUT >= handed_over, "{since}, {handed_over:?}");
    assert!(time(since) <= SystemTime::now());
    assert!(time(holder.queued_since()) >= time(&before), "{holder:?}");
    assert!(time(holder.queued_since()) <= time(since), "{holder:?}");
    assert!(second.is_held());
    second.release().await.unwrap();
    corner.until_empty().await;
}
