//! Site of an annotation: what it says of its function, known while compiling.

use std::time::Duration;

use crate::values::wait::Wait;

/// The place of an annotation and its options.
#[doc(hidden)]
#[derive(Debug)]
pub struct Site {
    /// Module path and name of the function.
    pub function: &'static str,
    /// How long to queue, if that is a literal; `None`: as configured.
    pub wait: Option<Wait>,
    /// Lease TTL, if that is a literal; `None`: as configured.
    pub ttl: Option<Duration>,
}
