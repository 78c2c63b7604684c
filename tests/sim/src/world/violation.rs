//! Violation: how a schedule ends if a promise does not hold.

use std::any::Any;
use std::fmt;

/// A promise, named after the invariant in ARCHITECTURE.md that it helps to show. `Cost` is I12.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Promise {
    /// Bodies run together only if they may.
    I1,
    /// A lock is not granted after its stop time, and does not revive.
    I2,
    /// Tokens increase.
    I3,
    /// Nothing is left.
    I4,
    /// A release deletes only its own incarnation.
    I5,
    /// One waiting key for each name and process, and never two acquisitions of a name in a transaction.
    I6,
    /// One key for each name, lease and seat.
    I7,
    /// The core does not panic, and does not loop without end.
    I10,
    /// A key is deleted after its body.
    I11,
    /// The cost of an input depends only on what it concerns.
    Cost,
    /// A result comes within its time.
    #[cfg_attr(not(test), allow(dead_code))] // of scenarios
    InTime,
    /// In a process, calls are granted in the order of their arrival.
    Order,
    /// Every call is granted, or refused with a reason.
    Progress,
    /// Every report of a core is true.
    Truth,
}

/// The promise that was broken, and how.
#[derive(Debug, Clone)]
pub(crate) struct Violation {
    pub(crate) promise: Promise,
    pub(crate) what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.promise, self.what)
    }
}

impl Violation {
    /// Converts a panic's payload: a violation, or a panic of the core.
    pub(crate) fn caught(payload: Box<dyn Any + Send>) -> Self {
        let panic = match payload.downcast::<Self>() {
            Ok(violation) => return *violation,
            Err(panic) => panic,
        };
        let what = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
            (Some(what), _) => (*what).to_owned(),
            (_, Some(what)) => what.clone(),
            _ => "a panic without words".to_owned(),
        };
        Self { promise: Promise::I10, what }
    }
}

/// Ends the schedule. It skips the panic hook, because a failed schedule is played again with its trace.
pub(crate) fn broken(promise: Promise, what: String) -> ! {
    std::panic::resume_unwind(Box::new(Violation { promise, what }))
}

/// Ends the schedule unless this holds.
macro_rules! must {
    ($promise:ident, $holds:expr, $($what:tt)+) => {
        if !$holds {
            $crate::world::violation::broken($crate::world::violation::Promise::$promise, format!($($what)+));
        }
    };
}
pub(crate) use must;
