//! Lost history of etcd: it is logged once, however many locks it costs.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::corner::Corner;
use crate::etcd::Etcd;
use crate::limit::{self, within_time};
use crate::real_only::real_etcd_only;
use crate::worker::Worker;

/// Longer than the renewal interval of the session with the longer TTL, which outlasts the restore.
const NOTICED: Duration = Duration::from_secs(30);

/// Reads lines until all these locks are lost, and returns the errors among them.
async fn errors_until_lost(worker: &mut Worker, jobs: &BTreeSet<String>) -> Vec<String> {
    let (mut lost, mut errors) = (BTreeSet::new(), Vec::new());
    while lost.len() < jobs.len() {
        let line = worker.line().await;
        if let Some(line) = line.strip_prefix("lost ") {
            let words: Vec<_> = line.split(' ').collect();
            // While etcd is down, a session of five seconds may expire.
            let ended = words[1] == "Expired" && words[0].ends_with("short");
            assert!(ended || words[1] == "Wiped", "{line}");
            assert!(lost.insert(words[0].to_owned()), "{line}");
        }
        errors.extend(line.strip_prefix("logged ERROR ").map(str::to_owned));
    }
    assert_eq!(&lost, jobs);
    errors
}

#[limit::test]
async fn lost_history_is_one_error_event() {
    real_etcd_only!("an embedded etcd makes no snapshot");
    let mut etcd = Etcd::start().await;
    let corner = Corner::of(&etcd).await;
    let mut worker = corner.worker([("ETCD_LOCKED_TTL", "45s"), ("WORKER_LOGS", "error")]);
    // Two rounds: another restore is another event.
    for round in 0..2 {
        etcd.save();
        // Under two sessions, which notice it at different times.
        let mut jobs = BTreeSet::new();
        for job in 0..20 {
            let (kind, length) = [("work", "long"), ("work-five", "short")][job % 2];
            let job = format!("job{round}-{job}-{length}");
            worker.asked(&format!("{kind} {job}"), "held").await;
            jobs.insert(job);
        }
        etcd.kill();
        etcd.restore();
        etcd.start_again().await;
        let lost = errors_until_lost(&mut worker, &jobs);
        let mut errors = within_time(NOTICED, "all losses", lost).await;
        // A lock of the new history. By then everything about the old one has been logged.
        worker.asked(&format!("lock late/{round}"), "locked").await;
        errors.extend(worker.unread().into_iter().filter(|line| line.starts_with("logged ERROR")));
        let [error] = &errors[..] else { panic!("{errors:#?}") };
        assert!(error.contains("etcd.history_lost"), "{error}");
        assert!(error.contains("Tokens may go backwards"), "{error}");
    }
}
