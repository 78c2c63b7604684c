//! What a schedule ends with when something does not hold.

use std::any::Any;
use std::fmt;

/// A promise, by the number of the invariant in ARCHITECTURE.md that it helps to show; `Cost` is I12.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Promise {
    /// Only bodies that may run together do.
    I1,
    /// A lock is not granted after its stop time, and does not come back.
    I2,
    /// Tokens rise.
    I3,
    /// Nothing is left.
    I4,
    /// A release deletes only its own incarnation.
    I5,
    /// One waiting key a name and process, and never two acquisitions of it in a transaction.
    I6,
    /// One key for each name, lease and seat.
    I7,
    /// It does not panic, and does not run in cycles.
    I10,
    /// A key goes after its body.
    I11,
    /// Work costs what it is about.
    Cost,
    /// An answer comes within its time.
    #[cfg_attr(not(test), allow(dead_code))] // of scenarios
    InTime,
    /// In a process, first come, first served.
    Order,
    /// Every call is served, or refused with a reason.
    Progress,
    /// What a core answers is so.
    Truth,
}

/// What did not hold.
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
    /// From what unwound a schedule: a violation, or a panic of the core.
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

/// Ends the schedule. Not a panic for the hook to print: a schedule that fails is played again, with words.
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
