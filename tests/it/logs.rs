//! Log lines (warnings and errors) of this process's engines, selected by the address of an etcd.

use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;

use etcd_locked_tests::Lines;
use tokio::time::sleep;
use tracing::level_filters::LevelFilter;

use crate::limit::within;

/// Lines that the whole process has logged.
static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Begins to collect lines. Call it before the lines that should be collected.
pub(crate) fn collect() {
    static COLLECTS: Once = Once::new();
    COLLECTS.call_once(|| {
        let collector = Lines::new("", LevelFilter::WARN, |_, line| {
            let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
            lines.push(line);
        });
        tracing::subscriber::set_global_default(collector).expect("the only one of this process");
    });
}

/// Awaits that a line of each of these codes was logged in this process.
pub(crate) async fn until(codes: &[&str]) {
    for code in codes {
        logged("", code).await;
    }
}

/// Awaits a line of a code about an address or a template, and returns all of them.
pub(crate) async fn logged(subject: &str, code: &str) -> Vec<String> {
    within(&format!("a log line with the code {code}"), async {
        loop {
            let mut found = about(subject);
            found.retain(|line| line.contains(&format!("code={code:?}")));
            if !found.is_empty() {
                return found;
            }
            sleep(Duration::from_millis(20)).await; // not in a busy loop
        }
    })
    .await
}

/// Returns the lines that name this address or template.
pub(crate) fn about(subject: &str) -> Vec<String> {
    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    lines.iter().filter(|line| line.contains(subject)).cloned().collect()
}
