//! Metrics: what the feature `metrics` measures; without it, nothing.

#[cfg(feature = "metrics")]
pub(crate) use on::{Measurement, history_lost, lost};

#[cfg(not(feature = "metrics"))]
pub(crate) use off::{Measurement, history_lost, lost};

#[cfg(feature = "metrics")]
mod on {
    use ::metrics::{counter, gauge, histogram};

    use crate::clock::Moment;
    use crate::values::error::LockError;
    use crate::values::loss::LossCause;
    use crate::values::name::Name;

    /// A measurement under way: of a wait, or of how long a lock is held.
    #[derive(Debug)]
    pub(crate) struct Measurement {
        /// The template: values may be personal data, and each would make a series.
        lock: &'static str,
        since: Moment,
    }

    fn label(name: &Name) -> &'static str {
        name.template().unwrap_or("<name given at run time>")
    }

    impl Measurement {
        pub(crate) fn start(name: &Name, now: impl FnOnce() -> Moment) -> Self {
            Self {
                lock: label(name),
                since: now(),
            }
        }

        /// Measures a call that waits from now on; [`waited`](Self::waited) or [`gone`](Self::gone) must follow.
        pub(crate) fn waits(name: &Name, now: impl FnOnce() -> Moment) -> Self {
            let measurement = Self::start(name, now);
            gauge!("etcd_locked_waiters", "lock" => measurement.lock).increment(1.0);
            measurement
        }

        /// Records the end of the wait.
        pub(crate) fn waited(&self, refused: Option<&LockError>, now: impl FnOnce() -> Moment) {
            self.ends(
                match refused {
                    None => "granted",
                    Some(LockError::Held { .. }) => "held",
                    Some(LockError::Timeout { .. }) => "timeout",
                    Some(_) => "failed",
                },
                now,
            );
        }

        /// Records that the caller has gone.
        pub(crate) fn gone(&self, now: impl FnOnce() -> Moment) {
            self.ends("dropped", now);
        }

        fn ends(&self, outcome: &'static str, now: impl FnOnce() -> Moment) {
            gauge!("etcd_locked_waiters", "lock" => self.lock).decrement(1.0);
            histogram!("etcd_locked_wait_seconds", "lock" => self.lock, "outcome" => outcome)
                .record(now() - self.since);
        }

        /// Records that the lock was held until now.
        pub(crate) fn held(&self, now: impl FnOnce() -> Moment) {
            histogram!("etcd_locked_hold_seconds", "lock" => self.lock).record(now() - self.since);
        }
    }

    /// Counts a lost history of etcd.
    pub(crate) fn history_lost() {
        counter!("etcd_locked_history_lost_total").increment(1);
    }

    /// Counts a lost lock.
    pub(crate) fn lost(name: &Name, cause: LossCause) {
        counter!("etcd_locked_lost_total", "lock" => label(name), "cause" => cause.word())
            .increment(1);
    }
}

#[cfg(not(feature = "metrics"))]
mod off {
    use crate::clock::Moment;
    use crate::values::error::LockError;
    use crate::values::loss::LossCause;
    use crate::values::name::Name;

    /// Takes no room, and reads no clock.
    #[derive(Debug)]
    pub(crate) struct Measurement;

    impl Measurement {
        pub(crate) fn start(_: &Name, _: impl FnOnce() -> Moment) -> Self {
            Self
        }

        pub(crate) fn waits(_: &Name, _: impl FnOnce() -> Moment) -> Self {
            Self
        }

        pub(crate) fn waited(&self, _: Option<&LockError>, _: impl FnOnce() -> Moment) {}

        pub(crate) fn gone(&self, _: impl FnOnce() -> Moment) {}

        pub(crate) fn held(&self, _: impl FnOnce() -> Moment) {}
    }

    pub(crate) fn history_lost() {}

    pub(crate) fn lost(_: &Name, _: LossCause) {}
}
