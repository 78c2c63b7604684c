//! Monotonic clock that all processes of a test share.

use rustix::time::{ClockId, clock_gettime};

/// Reads `CLOCK_MONOTONIC` in nanoseconds. All processes of a machine share it, so times of two processes compare.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
