//! Holder record: the key and value in etcd while a lock is held, for operators and other clients.

use std::time::{Duration, SystemTime};

use etcd_locked::{LockError, Locks, etcd_locked};
use serde_json::Value;

use crate::corner::{Corner, Key};
use crate::limit::{self, within};

#[etcd_locked("orders/<id>", locks = locks)]
async fn keys(locks: &Locks, id: u64, corner: &Corner) -> Result<Vec<Key>, LockError> {
    Ok(corner.contenders("orders/42").await)
}

#[limit::test]
async fn a_value_says_who_holds_the_lock() {
    let corner = Corner::new().await;
    let before = SystemTime::now() - Duration::from_secs(1);
    let keys = within("the call", keys(&corner.locks().await, 42, &corner)).await.unwrap();
    let record: Value = serde_json::from_slice(&keys[0].value).expect("JSON");
    assert_eq!(record["pid"], std::process::id());
    assert_eq!(record["service"], "tests");
    assert_eq!(record["function"], concat!(module_path!(), "::keys"));
    assert_eq!(record["template"], "orders/<id>");
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("Linux");
    assert_eq!(record["host"], host.trim());
    let since =
        humantime::parse_rfc3339(record["queued_since"].as_str().unwrap()).expect("RFC 3339");
    assert!(since >= before && since <= SystemTime::now() + Duration::from_secs(1), "{since:?}");
}

#[limit::test]
async fn a_refused_caller_reads_the_same_record() {
    let corner = Corner::new().await;
    let mut worker = corner.worker([("ETCD_LOCKED_SERVICE", "till service")]);
    worker.asked("work till", "held").await;
    let refused = corner.locks().await.lock("jobs/till").try_once().await;
    let Err(error @ LockError::Held { .. }) = refused else { panic!("{refused:?}") };
    // The error names the holder, so that an operator knows which process to ask.
    for part in ["till service", &worker.pid().to_string()] {
        assert!(error.to_string().contains(part), "no {part} in `{error}`");
    }
    let LockError::Held { holder: Some(holder), .. } = error else { panic!("{error:?}") };
    assert_eq!((holder.service(), holder.pid()), ("till service", worker.pid()));
    assert_eq!(holder.template(), Some("jobs/<job>"));
    assert_eq!(holder.function(), Some("worker::work"));
    humantime::parse_rfc3339(holder.queued_since()).expect("RFC 3339");
    worker.asked("done till", "released").await;
}

#[limit::test]
async fn a_session_key_has_the_lease_of_its_locks() {
    let corner = Corner::new().await;
    let held = corner.locks().await.lock("orders/42").await.unwrap();
    let lease = corner.owner("orders/42").await.lease;
    assert_ne!(lease, 0, "the key would outlive a crash");
    let sessions = corner.sessions().await;
    let [session] = sessions.as_slice() else { panic!("{sessions:?}") };
    assert_eq!(session.text, format!("{}{lease:x}", corner.session_prefix()));
    assert_eq!(session.lease, lease);
    let record: Value = serde_json::from_slice(&corner.owner("orders/42").await.value).unwrap();
    let by_hand = (&record["function"], &record["template"]);
    assert_eq!(by_hand, (&Value::Null, &Value::Null));
    held.release().await.unwrap();
}

/// An operator's put detaches a key from its lease, so the key outlives its process.
#[limit::test]
async fn a_key_without_a_lease_is_named() {
    let (corner, [mine, theirs]) = Corner::with_engines().await;
    let mut client = corner.client.clone();
    let held = theirs.lock("orders/4711").await.expect("a free name");
    let detached = corner.owner("orders/4711").await.text;
    let alone = format!("{}operator", corner.below("orders/4712"));
    for (name, key) in [("orders/4711", detached), ("orders/4712", alone)] {
        client.put(&*key, "", None).await.expect("etcd takes a put");
        let tried = within("a try", mine.lock(name).try_once()).await;
        let waited = mine.lock(name).wait(Duration::from_secs(3));
        let waited = within("a wait", waited).await;
        assert_matches!(tried, Err(LockError::Held { .. }));
        assert_matches!(waited, Err(LockError::Timeout { .. }));
        for error in [tried.unwrap_err(), waited.unwrap_err()] {
            let (text, debug) = (error.to_string(), format!("{error:?}"));
            assert!(debug.contains(&key), "no `{key}` in {debug}");
            assert!(text.contains("never expire"), "`{text}`");
            // The name's values may be personal data.
            assert!(!text.contains("471"), "`{text}`");
        }
    }
    drop(held);
}
