//! What a core does when a time has come.

use crate::clock::Moment;
use crate::core::lease::LeaseRef;
use crate::core::request::Key;
use crate::core::{CallId, Core};

/// What a point in time is good for. A timer that is no longer wanted fires and finds nothing to do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The call's wait is over.
    Wait(CallId),
    /// The release has waited long enough for its confirmation.
    Confirm(CallId),
    /// Nobody has come for what the call had.
    Linger(CallId),
    /// Try again to keep what the call has left locked; and its time is over.
    Retain(CallId),
    Retained(CallId),
    /// Ask for the lease again.
    Grant(LeaseRef),
    Renew(LeaseRef),
    /// The lease's local stop time.
    Stop(LeaseRef),
    /// Send the seal again.
    Seal(LeaseRef),
    /// Refuse the calls that have waited too long for etcd to be reached.
    Trouble(LeaseRef),
    /// Look at the name again.
    Look(Key),
    /// The name has been held for a while: watch its key (rule P18).
    Guard(Key),
    /// The name has not been wanted for a while: stop watching it.
    Rest(Key),
    /// The call has waited for a while: is it in a circle? Or, of a holder, write its keys again.
    Deadlock(CallId),
    /// Send what was held back.
    Flush,
    /// The grace of the shutdown is over; or all waiting is.
    Shutdown,
}

impl Core {
    pub(super) fn at(&mut self, when: Moment, timer: Timer) {
        self.timers.insert((when, timer));
    }

    pub(super) fn fire(&mut self, now: Moment) {
        while self.timers.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, timer)) = self.timers.pop_first() else {
                return;
            };
            match timer {
                Timer::Wait(call) => self.wait_over(now, call),
                Timer::Confirm(call) => self.confirm_over(call),
                Timer::Linger(call) => self.linger_over(now, call),
                Timer::Retain(call) => self.retain_on(now, call),
                Timer::Retained(call) => self.retention_over(now, call),
                Timer::Grant(lease) => self.ask(now, lease),
                Timer::Renew(lease) => self.renew_if_due(now, lease),
                Timer::Stop(lease) => self.stop(now, lease),
                Timer::Seal(lease) => self.send_seal(now, lease),
                Timer::Trouble(lease) => self.trouble(now, lease),
                Timer::Look(name) => self.look_if_due(now, &name),
                Timer::Guard(name) => self.guard(now, &name),
                Timer::Rest(name) => self.rest(now, &name),
                Timer::Deadlock(call) => self.step(now, call),
                Timer::Flush => {}
                Timer::Shutdown => self.shutdown_due(now),
            }
        }
    }
}
