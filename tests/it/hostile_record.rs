//! Hostile records: a stranger may write anything below a name, but cannot forge a line or make an error long (invariant I9).

use std::time::Duration;

use etcd_locked::LockError;

use crate::corner::{Corner, refused_after_its_wait};
use crate::limit::{self, within};

/// Characters that a terminal or a log would obey, reorder or hide, or that would end a line.
const HOSTILE: &str = "x`\n2026-01-01 ERROR forged\r\u{1b}[2J\u{1b}]0;t\u{7}\u{9b}31m\0\u{85}\u{2028}\u{202e}\u{2066}\u{200b}\u{feff}\u{e0041}";

/// Length of the longest error, in characters: six texts of 200, a key, and the words around them.
const LONGEST: usize = 2_100;

fn record(text: &str) -> String {
    serde_json::json!({
        "host": text, "service": text, "function": text, "template": text,
        "queued_since": text, "held_since": text, "pid": 7,
    })
    .to_string()
}

fn is_one_short_line(what: &str, text: &str) {
    assert!(text.chars().count() <= LONGEST, "{what}: {} characters", text.len());
    let acts = |c: char| c.is_control() || HOSTILE.contains(c) && !c.is_ascii();
    assert!(!text.contains(acts), "{what}: {text:?}");
}

#[limit::test]
async fn a_strangers_record_is_escaped_and_cut() {
    let (corner, [locks]) = Corner::with_engines().await;
    let mut client = corner.client.clone();
    for (name, value) in [
        ("orders/1", record(HOSTILE)),
        ("orders/2", record(&HOSTILE.repeat(800))),
        ("orders/3", record(&"y".repeat(233_000))),
    ] {
        assert!(value.len() < 1_450_000, "etcd takes no more than 1.5 MiB");
        let key = format!("{}stranger", corner.below(name));
        client.put(key, value, None).await.unwrap();
        let tried = within("a try", locks.lock(name).try_once()).await.unwrap_err();
        let call = async || locks.lock(name).wait(Duration::from_secs(1)).await;
        let waited = refused_after_its_wait("the end of a wait", call).await;
        assert!(matches!(tried, LockError::Held { .. }), "{tried}");
        assert!(matches!(waited, LockError::Timeout { .. }), "{waited}");
        for error in [tried, waited] {
            is_one_short_line(name, &error.to_string());
            is_one_short_line(name, &format!("{error:?}"));
            is_one_short_line(name, &format!("{error:#?}").replace('\n', ""));
            if let LockError::Held { holder: Some(holder), .. } = &error {
                assert!(name != "orders/3", "a record of 1.4 MB was read");
                let since = [Some(holder.queued_since()), holder.held_since()];
                let since = since.map(|since| since.expect("a time"));
                for text in [holder.host(), holder.service()].into_iter().chain(since) {
                    is_one_short_line(name, text);
                }
            }
        }
    }
}

#[limit::test]
async fn a_strangers_record_forges_no_log_line() {
    let corner = Corner::new().await;
    let mut client = corner.client.clone();
    let key = format!("{}stranger", corner.below("orders/1"));
    client.put(key, record(HOSTILE), None).await.unwrap();
    let mut worker = corner.worker([("WORKER_LOGS", "trace")]);
    worker.send("lock orders/1");
    loop {
        let line = worker.line().await;
        is_one_short_line("a line of the log", &line);
        if line.starts_with("failed orders/1 Held") {
            break;
        }
        assert!(line.starts_with("logged "), "{line}");
    }
}
