//! Processor time of this process, all threads together.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::{Instant, sleep_until};

use super::tally::Window;

/// Answers the processor time since the process began.
pub(super) fn used() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    // This clock is never negative.
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanos)
}

/// Awaits the end of a window, and answers the processor time used within it.
pub(super) async fn used_within(window: Window) -> Duration {
    sleep_until(Instant::from_std(window.begin)).await;
    let before = used();
    sleep_until(Instant::from_std(window.end)).await;
    used() - before
}
