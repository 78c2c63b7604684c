//! Stalls: times in which the machine did not run a thread that was due, as where it has too little processor time for all.

use std::thread;
use std::time::Duration;

use crate::clock::{ms, now};

const PAUSE: Duration = Duration::from_millis(20);
/// From this long on it is a stall, in nanoseconds.
const LATE: u64 = ms(200);

/// Watches for stalls of this process from now on, in a thread of its own; each is passed on with when it began.
pub(crate) fn watch(stalled: impl Fn(u64) + Send + 'static) {
    thread::spawn(move || {
        loop {
            let due = now() + ms(20);
            thread::sleep(PAUSE);
            if now() > due + LATE {
                stalled(due);
            }
        }
    });
}
