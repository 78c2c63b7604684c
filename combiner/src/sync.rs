//! Locks of the combiner: std's; in this crate's own unit tests locks that loom schedules.
//!
//! [`TryMutex`] is for what no submitter waits for (`begin` alone does), [`Mutex`] for sections of a few instructions.

#[cfg(not(test))]
pub(crate) use native::{Mutex, TryMutex, lock, try_lock, wait_for};

#[cfg(test)]
pub(crate) use modelled::{Mutex, TryMutex, lock, try_lock, wait_for};

#[cfg(not(test))]
mod native {
    use std::sync::{MutexGuard, PoisonError, TryLockError};

    pub(crate) use std::sync::Mutex;
    pub(crate) use std::sync::Mutex as TryMutex;

    pub(crate) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
        of.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: another thread has it, or this one.
    pub(crate) fn try_lock<T>(of: &TryMutex<T>) -> Option<MutexGuard<'_, T>> {
        match of.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(crate) fn wait_for<T>(of: &TryMutex<T>) -> MutexGuard<'_, T> {
        lock(of)
    }
}

#[cfg(test)]
mod modelled {
    use std::ops::{Deref, DerefMut};

    use loom::sync::MutexGuard;
    use loom::sync::atomic::{AtomicBool, Ordering};

    pub(crate) use loom::sync::Mutex;

    pub(crate) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
        of.lock().unwrap()
    }

    /// What std's mutex is to a thread that only tries. Not loom's: that one suspends a thread which is about to try until the
    /// lock is free, and so leaves out schedules where the try fails.
    pub(crate) struct TryMutex<T> {
        taken: AtomicBool,
        data: std::sync::Mutex<T>,
    }

    pub(crate) struct TryMutexGuard<'a, T> {
        of: &'a AtomicBool,
        data: Option<std::sync::MutexGuard<'a, T>>,
    }

    impl<T> TryMutex<T> {
        pub(crate) fn new(data: T) -> Self {
            Self { taken: AtomicBool::new(false), data: std::sync::Mutex::new(data) }
        }
    }

    pub(crate) fn try_lock<T>(of: &TryMutex<T>) -> Option<TryMutexGuard<'_, T>> {
        // The orderings of std's.
        let tried = of.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        tried.ok().map(|_| TryMutexGuard {
            of: &of.taken,
            data: Some(of.data.lock().unwrap()), // free: `taken` was
        })
    }

    /// Models begin before they start threads, so nothing is waited for.
    pub(crate) fn wait_for<T>(of: &TryMutex<T>) -> TryMutexGuard<'_, T> {
        try_lock(of).unwrap()
    }

    impl<T> Deref for TryMutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.data.as_ref().unwrap()
        }
    }

    impl<T> DerefMut for TryMutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.data.as_mut().unwrap()
        }
    }

    impl<T> Drop for TryMutexGuard<'_, T> {
        fn drop(&mut self) {
            self.data = None;
            self.of.store(false, Ordering::Release);
        }
    }
}
