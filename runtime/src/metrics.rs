//! Metrics, by the feature `metrics`; without it, nothing is measured.

use std::collections::BTreeSet;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use etcd_locked_core::{Failure, Request, Response};

#[cfg(not(feature = "metrics"))]
use self::off::{counter, gauge, histogram};
use crate::clock::Moment;
use crate::values::{LockError, LossCause, Name, RUN_TIME};
#[cfg(feature = "metrics")]
use ::metrics::{counter, gauge, histogram};

/// Recording that runs later, on a thread of a caller or of the engine, because a recorder is user code.
pub(crate) type Later = Box<dyn FnOnce() + Send>;

/// Bounds of histogram buckets that fit locks, in seconds, from half a millisecond to a minute. Pass them to your recorder, such as by
/// `PrometheusBuilder::set_buckets` of `metrics-exporter-prometheus`.
#[cfg(feature = "metrics")]
pub const BUCKETS: [f64; 16] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0,
];

/// Reads the clock if the feature is on.
fn read(now: impl FnOnce() -> Moment) -> Moment {
    if cfg!(feature = "metrics") { now() } else { Moment::after_boot(Duration::ZERO) }
}

/// A measurement in progress: of a wait, or of the time for which a lock is held.
#[derive(Debug)]
pub(crate) struct Measurement {
    /// The template: values may be personal data, and each would make a new series.
    lock: &'static str,
    since: Moment,
}

fn label(name: &Name) -> &'static str {
    name.template().unwrap_or(RUN_TIME)
}

/// Templates whose series exist.
static BEGUN: RwLock<BTreeSet<&'static str>> = RwLock::new(BTreeSet::new());

/// Creates the series of a template at its first call, because an alert cannot tell a missing series from zero.
fn begin(lock: &'static str) {
    let begun = |known: &BTreeSet<&str>| known.contains(lock);
    if !cfg!(feature = "metrics") || begun(&BEGUN.read().unwrap_or_else(PoisonError::into_inner)) {
        return;
    }
    let mut all = BEGUN.write().unwrap_or_else(PoisonError::into_inner);
    if all.is_empty() {
        #[cfg(feature = "metrics")]
        describe();
        counter!("etcd_locked_history_lost_total").increment(0);
    }
    if !all.insert(lock) {
        return;
    }
    drop(all); // the recorder is user code
    gauge!("etcd_locked_held", "lock" => lock).increment(0.0);
    counter!("etcd_locked_deadlocks_total", "lock" => lock).increment(0);
    for kind in ["local", "remote"] {
        counter!("etcd_locked_handovers_total", "lock" => lock, "kind" => kind).increment(0);
    }
    for cause in LossCause::OF_LOCKS.map(LossCause::word) {
        counter!("etcd_locked_lost_total", "lock" => lock, "cause" => cause).increment(0);
    }
}

#[cfg(feature = "metrics")]
fn describe() {
    use ::metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

    let seconds = Unit::Seconds;
    for (histogram, what) in [
        ("etcd_locked_wait_seconds", "How long calls waited for their locks"),
        ("etcd_locked_hold_seconds", "How long locks were held"),
        ("etcd_locked_request_seconds", "How long exchanges with etcd took"),
    ] {
        describe_histogram!(histogram, seconds, what);
    }
    let lease = "Time until the first of the renewed leases ends without another renewal";
    describe_gauge!("etcd_locked_lease_remaining_seconds", seconds, lease);
    describe_gauge!("etcd_locked_waiters", "How many calls of this process wait now");
    describe_gauge!("etcd_locked_reachable", "Whether etcd is reachable: 1 if it is, 0 if not");
    describe_gauge!("etcd_locked_held", "How many calls of this process hold their locks now");
    for (counter, what) in [
        ("etcd_locked_lost_total", "Locks that were lost"),
        ("etcd_locked_deadlocks_total", "Calls that were refused to end a deadlock"),
        ("etcd_locked_handovers_total", "Locks that passed from another call, local or remote"),
        ("etcd_locked_history_lost_total", "How often etcd lost its history with all locks"),
        ("etcd_locked_connections_total", "Attempts to connect to etcd"),
    ] {
        describe_counter!(counter, what);
    }
}

impl Measurement {
    /// Starts to measure the wait of a call; [`waited`](Self::waited) or [`ends`](Self::ends) must follow.
    pub(crate) fn waits(name: &Name, now: impl FnOnce() -> Moment) -> Self {
        let lock = label(name);
        begin(lock);
        gauge!("etcd_locked_waiters", "lock" => lock).increment(1.0);
        Self { lock, since: read(now) }
    }

    /// Records the end of the wait.
    pub(crate) fn waited(&self, refused: Option<&LockError>, now: impl FnOnce() -> Moment) {
        self.ends(LockError::outcome(refused), now);
        if let Some(LockError::Deadlock { .. }) = refused {
            counter!("etcd_locked_deadlocks_total", "lock" => self.lock).increment(1);
        }
    }

    pub(crate) fn ends(&self, outcome: &'static str, now: impl FnOnce() -> Moment) {
        gauge!("etcd_locked_waiters", "lock" => self.lock).decrement(1.0);
        histogram!("etcd_locked_wait_seconds", "lock" => self.lock, "outcome" => outcome)
            .record(read(now) - self.since);
    }

    /// Starts to measure how long locks are held, and counts the hand-over if there was one; [`held`](Self::held) must follow.
    pub(crate) fn holds(name: &Name, since: Moment, handover: Option<&'static str>) -> Self {
        let lock = label(name);
        gauge!("etcd_locked_held", "lock" => lock).increment(1.0);
        if let Some(kind) = handover {
            counter!("etcd_locked_handovers_total", "lock" => lock, "kind" => kind).increment(1);
        }
        Self { lock, since }
    }

    /// Records that the lock was held until now.
    pub(crate) fn held(&self, now: impl FnOnce() -> Moment) {
        gauge!("etcd_locked_held", "lock" => self.lock).decrement(1.0);
        histogram!("etcd_locked_hold_seconds", "lock" => self.lock).record(read(now) - self.since);
    }
}

/// An exchange with etcd in progress.
pub(crate) struct Asked {
    kind: &'static str,
    since: Moment,
}

impl Asked {
    pub(crate) fn now(request: &Request, now: impl FnOnce() -> Moment) -> Self {
        let kind = match request {
            Request::Grant(_) => "grant",
            Request::KeepAlive { .. } => "keep_alive",
            Request::Revoke(_) => "revoke",
            Request::List(_) => "read",
            Request::Txn(txn) if txn.only_reads() => "read",
            Request::Txn(_) => "write",
        };
        Self { kind, since: read(now) }
    }

    /// Takes the response, and returns a closure that records it. `etcd` returns whether etcd is reachable, and how long the first of the
    /// renewed leases lasts at most.
    pub(crate) fn answered(
        self,
        answer: &Result<Response, Failure>,
        now: impl FnOnce() -> Moment,
        etcd: impl FnOnce() -> (bool, Option<Duration>),
    ) -> Option<Later> {
        if !cfg!(feature = "metrics") {
            return None;
        }
        let outcome = match answer {
            Ok(_) => "ok",
            Err(Failure::Refused(..)) => "refused",
            Err(Failure::Unavailable(_)) => "unavailable",
            Err(Failure::Unknown(_)) => "unknown",
        };
        let (kind, took) = (self.kind, now() - self.since);
        // These requests are sent three times within a TTL, and when a lease is no longer needed.
        let etcd = ["grant", "keep_alive", "revoke"].contains(&kind).then(etcd);
        Some(Box::new(move || {
            if let Some((is_reachable, shortest)) = etcd {
                reachable(is_reachable);
                let shortest = shortest.map_or(f64::INFINITY, |left| left.as_secs_f64());
                gauge!("etcd_locked_lease_remaining_seconds").set(shortest);
            }
            histogram!("etcd_locked_request_seconds", "kind" => kind, "outcome" => outcome)
                .record(took);
        }))
    }
}

/// Records that etcd was lost, or is back.
pub(crate) fn reachable(reachable: bool) {
    gauge!("etcd_locked_reachable").set(f64::from(u8::from(reachable)));
}

/// Counts an attempt to connect.
pub(crate) fn tried_connection(endpoint: &str, opened: bool) {
    let (endpoint, outcome) = (endpoint.to_owned(), if opened { "ok" } else { "failed" });
    counter!("etcd_locked_connections_total", "endpoint" => endpoint, "outcome" => outcome)
        .increment(1);
}

/// Counts a lost history of etcd.
pub(crate) fn history_lost() {
    counter!("etcd_locked_history_lost_total").increment(1);
}

/// Counts a lost lock.
pub(crate) fn lost(name: &Name, cause: LossCause) {
    counter!("etcd_locked_lost_total", "lock" => label(name), "cause" => cause.word()).increment(1);
}

/// Stand-ins for the macros of the crate `metrics`, which record nothing.
#[cfg(not(feature = "metrics"))]
mod off {
    use std::time::Duration;

    pub(super) struct Nothing;

    impl Nothing {
        pub(super) fn increment<T>(&self, _: T) {}
        pub(super) fn decrement(&self, _: f64) {}
        pub(super) fn set(&self, _: f64) {}
        pub(super) fn record(&self, _: Duration) {}
    }

    macro_rules! nothing {
        ($name:literal $(, $key:literal => $value:expr)*) => {{
            $(let _ = $value;)*
            $crate::metrics::off::Nothing
        }};
    }
    pub(super) use {nothing as counter, nothing as gauge, nothing as histogram};
}
