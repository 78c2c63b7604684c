//! Watch of the guardian: until when the command may run, and the action that is due. Times are nanoseconds of the boot clock.

/// Action of the guardian that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    /// Send SIGTERM to the command: the lock will soon be lost.
    Ask,
    /// Kill it: another process may now acquire the lock.
    Kill,
}

#[derive(Debug)]
pub(super) struct Watch {
    pub(super) stop: u64,
    /// How long before the stop time the command gets SIGTERM.
    pub(super) grace: u64,
    asked: bool,
    /// True if the lock is lost or taken away, or the wrapper has gone: then the stop time is never extended.
    is_last: bool,
}

impl Watch {
    pub(super) fn new(stop: u64, grace: u64) -> Self {
        Self { stop, grace, asked: false, is_last: false }
    }

    /// Extends the stop time after a renewal. A late message is harmless, because the lock really is held until this moment.
    pub(super) fn extend(&mut self, stop: u64) {
        if !self.is_last {
            self.stop = self.stop.max(stop);
        }
    }

    /// Ends the command by this moment, or by the stop time if that is earlier.
    pub(super) fn end(&mut self, stop: u64) {
        self.is_last = true;
        self.stop = self.stop.min(stop);
    }

    /// Returns the time of the next action.
    pub(super) fn next(&self) -> u64 {
        match self.asked {
            true => self.stop,
            false => self.stop.saturating_sub(self.grace),
        }
    }

    /// Returns the action that is due now; SIGTERM only once.
    pub(super) fn due(&mut self, now: u64) -> Due {
        if now >= self.stop {
            return Due::Kill;
        }
        if now < self.next() {
            return Due::Nothing;
        }
        self.asked = true;
        Due::Ask
    }
}
