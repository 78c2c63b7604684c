//! Boot-time clock that all processes of a run share.

use rustix::time::{ClockId, clock_gettime};

/// Reads `CLOCK_BOOTTIME` in nanoseconds. All processes of a machine share it, so times of two processes compare.
pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Returns this many milliseconds in nanoseconds.
pub(crate) const fn ms(milliseconds: u64) -> u64 {
    milliseconds * 1_000_000
}
