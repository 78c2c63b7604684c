//! Deadline: until when a lock may be relied on, as one atomic that callers read before every poll (rule P28).
//!
//! Invariants:
//! - 0 stands for *lost*, and lost is absorbing: no extension brings a deadline back.
//! - A reader that sees `now >= stop` swaps in 0, so that a late answer cannot revive what a body has seen end.
//! - An extension is a compare-exchange against a value that was still ahead of `now`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::moment::Moment;

/// The local stop time of a session.
#[derive(Debug)]
pub struct Deadline(AtomicU64);

impl Deadline {
    /// Ends at this moment.
    pub fn new(stop: Moment) -> Self {
        Self(AtomicU64::new(nanos(stop)))
    }

    /// Whether the session can no longer be relied on; from the first `true` on it stays so.
    #[must_use]
    pub fn is_over(&self, now: Moment) -> bool {
        let mut stop = self.0.load(Ordering::Acquire);
        while stop != 0 && nanos(now) >= stop {
            match self
                .0
                .compare_exchange_weak(stop, 0, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return true,
                Err(current) => stop = current,
            }
        }
        stop == 0
    }

    /// Moves the stop time on; false if it had been reached before the answer was seen.
    pub fn extend(&self, now: Moment, to: Moment) -> bool {
        let mut stop = self.0.load(Ordering::Acquire);
        loop {
            if stop == 0 || nanos(now) >= stop {
                self.lose();
                return false;
            }
            if nanos(to) <= stop {
                return true;
            }
            match self
                .0
                .compare_exchange_weak(stop, nanos(to), Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return true,
                Err(current) => stop = current,
            }
        }
    }

    /// Ends it now.
    pub fn lose(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// The stop time; `None` once lost.
    #[must_use]
    pub fn stop(&self) -> Option<Moment> {
        match self.0.load(Ordering::Acquire) {
            0 => None,
            stop => Some(Moment::after_boot(Duration::from_nanos(stop))),
        }
    }
}

fn nanos(moment: Moment) -> u64 {
    u64::try_from(moment.since_boot().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Moment {
        Moment::after_boot(Duration::from_secs(secs))
    }

    #[test]
    fn is_over_from_the_stop_time_on() {
        let deadline = Deadline::new(at(10));
        assert!(!deadline.is_over(at(9)));
        assert!(deadline.is_over(at(10)));
    }

    #[test]
    fn late_extension_does_not_revive() {
        let deadline = Deadline::new(at(10));
        assert!(!deadline.extend(at(10), at(20)));
        assert!(deadline.is_over(at(1)));
        assert_eq!(deadline.stop(), None);
    }

    #[test]
    fn extension_never_shortens() {
        let deadline = Deadline::new(at(10));
        assert!(deadline.extend(at(1), at(5)));
        assert_eq!(deadline.stop(), Some(at(10)));
        assert!(deadline.extend(at(1), at(12)));
        assert_eq!(deadline.stop(), Some(at(12)));
    }
}
