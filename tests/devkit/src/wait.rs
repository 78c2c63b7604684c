//! Wait for a condition, with a time limit.

use std::thread;
use std::time::{Duration, Instant};

use crate::Result;
use crate::process::interrupted;

const PAUSE: Duration = Duration::from_millis(10);

/// Waits until the condition holds. The error contains `what` was awaited.
pub fn until(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) -> Result<()> {
    let start = Instant::now();
    while !holds() {
        if interrupted() {
            return Err("interrupted".to_owned());
        }
        if start.elapsed() >= limit {
            return Err(format!("{what}: not within {limit:?}"));
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}
