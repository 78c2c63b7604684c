//! Usage of this process: memory, and processor time of all its threads together.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::{Instant, sleep_until};

use super::Fault;
use super::tally::Window;

/// Returns the resident memory in bytes.
pub(super) fn resident() -> Result<u64, Fault> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB"));
    let kib = kib.ok_or("/proc/self/status does not tell resident memory")?;
    Ok(kib.trim().parse::<u64>()? * 1024)
}

/// Returns the processor time since the process began.
pub(super) fn processor() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    // This clock is never negative.
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanos)
}

/// Awaits the end of a window, and returns the processor time used within it.
pub(super) async fn processor_within(window: Window) -> Duration {
    sleep_until(Instant::from_std(window.begin)).await;
    let before = processor();
    sleep_until(Instant::from_std(window.end)).await;
    processor() - before
}
