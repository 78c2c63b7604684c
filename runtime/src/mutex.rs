//! Mutex of the standard library, locked even after a panic: its data is consistent, because no user code runs under it.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
