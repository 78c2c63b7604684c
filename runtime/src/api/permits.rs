//! Numbers of permits: calls that ask for different numbers of one name are reported.
//!
//! It is no error, as it happens in every rolling deployment: a call's own number counts. Where it lasts, one number is a mistake.

use std::collections::BTreeSet;
use std::num::NonZeroU16;
use std::sync::{Arc, Mutex, PoisonError};

use super::lock_order::{Family, family};
use crate::values::error::LockError;

/// Names that are remembered: a program has few templates, unless it makes up its names as it goes.
const NAMES: usize = 1024;

/// The names, by their templates, that have been reported.
#[derive(Debug, Clone, Default)]
pub(crate) struct Differences(Arc<Mutex<BTreeSet<Family>>>);

impl Differences {
    /// A call for one of `permits` was refused: reports the holder if that asked for another number, once for each template.
    pub(crate) fn check(
        &self,
        permits: NonZeroU16,
        function: Option<&'static str>,
        error: &LockError,
    ) {
        let differs = |of: &u16| *of != permits.get();
        if let (Some(name), Some(holder)) = (error.name(), error.holder())
            && let Some(theirs) = holder.permits().filter(differs)
            && let Some(family) = family(name)
            && self.first(family)
        {
            tracing::warn!(
                code = "lock.permits_differ",
                lock = %name,
                here = function.unwrap_or("lock()"),
                permits,
                %holder,
                theirs,
                "the holder has asked for another number of permits of this name, as in a rolling deployment: each call's own number \
                 counts. If it lasts, one of the two is mistaken"
            );
        }
    }

    fn first(&self, family: Family) -> bool {
        let mut reported = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reported.len() < NAMES && reported.insert(family)
    }
}
