//! Site of an annotation: what it says of its function, known while compiling.

use std::time::Duration;

use crate::values::wait::Wait;

/// What is constant in an annotation.
#[doc(hidden)]
#[derive(Debug)]
pub struct Site {
    /// Module path and name of the function.
    pub function: &'static str,
    /// How long to queue, if that is a literal; `None`: not given, or an expression, which
    /// [`Lock::wait`](super::call::Lock::wait) brings.
    pub wait: Option<Wait>,
    /// Lease TTL, if that is a literal; `None`: likewise.
    pub ttl: Option<Duration>,
}
