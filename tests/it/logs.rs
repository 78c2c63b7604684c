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
    let logged = |code: &&str| all().iter().any(|line| line.contains(&format!("code=\"{code}\"")));
    let all_logged = async {
        while !codes.iter().all(logged) {
            sleep(Duration::from_millis(20)).await; // not in a busy loop
        }
    };
    within(&format!("log lines with the codes {codes:?}"), all_logged).await;
}

/// Returns the lines that name this address.
pub(crate) fn about(address: &str) -> Vec<String> {
    let mut lines = all();
    lines.retain(|line| line.contains(address));
    lines
}

/// Returns the lines of the whole process.
fn all() -> Vec<String> {
    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    lines.clone()
}
