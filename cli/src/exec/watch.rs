//! Watch of the guardian: until when the command may run, and what is to be done to it now. Times are nanoseconds of the boot clock.

/// What the guardian is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    /// Ask the command to end: the lock will soon be lost.
    Ask,
    /// Kill it: the lock may be another process's from now on.
    Kill,
}

#[derive(Debug)]
pub(super) struct Watch {
    pub(super) stop: u64,
    /// How long before the stop time the command is asked to end.
    pub(super) grace: u64,
    asked: bool,
    /// The lock is lost or wanted by an operator, or the wrapper has gone: nothing moves the stop time on.
    is_last: bool,
}

impl Watch {
    pub(super) fn new(stop: u64, grace: u64) -> Self {
        Self { stop, grace, asked: false, is_last: false }
    }

    /// The lock was renewed: it is held until this moment. True whenever it is read, so a late message does no harm.
    pub(super) fn extend(&mut self, stop: u64) {
        if !self.is_last {
            self.stop = self.stop.max(stop);
        }
    }

    /// The command has until this moment, and no longer than the lock is held.
    pub(super) fn end(&mut self, stop: u64) {
        self.is_last = true;
        self.stop = self.stop.min(stop);
    }

    /// When there is something to do next.
    pub(super) fn next(&self) -> u64 {
        match self.asked {
            true => self.stop,
            false => self.stop.saturating_sub(self.grace),
        }
    }

    /// What is to be done now; it asks once.
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
