//! Locked: a value that proves that a lock is held.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

#[cfg(any(feature = "sqlx", feature = "sqlx-0-8"))]
use super::fenced::{FenceTarget, Fenced, fenced};
use super::{Dialect, Fence, FenceSql, current, fence, lock_of};
use crate::engine::{OwnedLock, OwnedLocks};
use crate::values::{LockName, LossCause, Name, Sharing, Token, getters};

/// Proof that a call holds a lock of the type `N`: a helper that takes `&Locked<Order>` cannot be called without an order's lock.
///
/// In an annotated function, `proof = order` binds it; a guard returns it by [`LockGuard::locked`](crate::LockGuard::locked). It can be
/// neither created nor cloned, and does not leave the body: code that returns it, stores it or passes it to a spawned task does not
/// compile.
///
/// ```
/// use etcd_locked::{LockError, Locked, etcd_locked, lock_names};
///
/// lock_names! {
///     pub Order = "orders/<id: u64>";
/// }
///
/// #[etcd_locked(Order { id }, proof = order)]
/// async fn ship(id: u64) -> Result<(), LockError> {
///     charge(order, 10).await
/// }
///
/// /// Can be called only under the lock of an order.
/// async fn charge(order: &Locked<Order>, amount: u64) -> Result<(), LockError> {
///     let (id, token) = (order.name().id, order.token().as_i64());
///     // update orders set due = due + $amount, token = $token where id = $id and token <= $token
///     // No row: a later holder has written, so this call must fail.
///     # let _ = (id, token, amount);
///     Ok(())
/// }
/// ```
///
/// The lock of a template or of a text is a `Locked<Name>`. A reader gets a `Locked<N, Shared>` and a permit a `Locked<N, Permit>`, so
/// neither can call a function that needs the exclusive lock. A function for any mode is generic: `async fn show<M: LockMode>(order:
/// &Locked<Order, M>)`.
///
/// The lock can be lost while the proof exists; the body then stops at its next await. Send the [`token`](Self::token) along with writes
/// that must not reach a database too late.
pub struct Locked<N: LockName, M: LockMode = Exclusive> {
    /// Boxed, because it lives in the user's future (row B12).
    held: Box<Held<N>>,
    mode: PhantomData<fn() -> M>,
}

struct Held<N: LockName> {
    locks: Arc<OwnedLocks>,
    lock: OwnedLock,
    kept: N::Kept,
}

impl<N: LockName, M: LockMode> Locked<N, M> {
    getters! { self:
        /// Returns the name with its fields: `order.name().id`. A name that borrows, such as `Stock { sku: &str }`, is returned as text,
        /// a [`Name`].
        name: &N::Kept = &self.held.kept;
        /// Returns the fencing token.
        token: Token = self.held.lock.token;
        /// Returns true if the lock is still held. Reads the clock, so the result is right even just after the process was paused.
        is_held: bool = self.held.locks.are_held();
        /// Returns how long the lock stays held even if etcd cannot be reached again; see
        /// [`LockGuard::remaining`](crate::LockGuard::remaining).
        remaining: Duration = self.held.locks.remaining();
        /// Returns a condition for your own etcd transactions, true only while this ownership of this name lasts; see
        /// [`LockGuard::fence`](crate::LockGuard::fence).
        fence: Fence = fence(&self.held.locks, &self.held.lock);
        /// Returns the mode that the call requested. A `reentrant` reader inside an exclusive call is still a reader.
        mode: Sharing = M::SHARING;
    }

    /// Waits until the lock is lost, or released because the call is over, and returns the cause. Cancel safe.
    pub async fn lost(&self) -> LossCause {
        self.held.locks.until_lost().await
    }
}

impl<N: LockName> Locked<N> {
    /// Returns the fence of a transaction, as SQL for any driver.
    pub fn fence_sql(&self, dialect: Dialect) -> FenceSql<'_> {
        FenceSql { dialect, call: &self.held.locks, lock: &self.held.lock }
    }

    /// Begins a fenced sqlx transaction, or fences one that you have begun; see [`LockGuard::fenced`](crate::LockGuard::fenced), also for
    /// the errors. Cancel safe: dropping the future rolls back.
    #[cfg(any(feature = "sqlx", feature = "sqlx-0-8"))]
    pub async fn fenced<T: FenceTarget>(&self, target: T) -> Fenced<T> {
        fenced(target, |dialect| vec![self.fence_sql(dialect)]).await
    }
}

/// Shows the template and never a value, which may be personal data.
impl<N: LockName, M: LockMode> fmt::Debug for Locked<N, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locked")
            .field("name", &format_args!("{}", self.held.lock.name))
            .field("token", &self.held.lock.token)
            .field("mode", &M::SHARING)
            .finish()
    }
}

/// Mode of a lock, as a type: [`Exclusive`], [`Shared`] or [`Permit`].
pub trait LockMode: sealed::Sealed + 'static {
    /// The mode as a value.
    const SHARING: Sharing;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! modes {
    ($($(#[$doc:meta])* $mode:ident)+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub enum $mode {}

        impl sealed::Sealed for $mode {}

        impl LockMode for $mode {
            const SHARING: Sharing = Sharing::$mode;
        }
    )+};
}

modes! {
    /// Exclusive: no other call holds the name.
    Exclusive
    /// Shared with other readers.
    Shared
    /// One of several permits.
    Permit
}

/// Proof of a lock that is not granted yet. One pointer, because it lives in the user's future (row B12).
pub struct Proof<N: LockName>(Box<(Name, N::Kept)>);

/// Renders a name once, into its pending proof and the name to lock.
pub fn prove<T: LockName>(given: T) -> (Proof<T::Held>, Name) {
    let name = given.lock_name();
    let kept = given.keep(&name);
    let wanted = name.clone();
    (Proof(Box::new((name, kept))), wanted)
}

impl<N: LockName> Proof<N> {
    /// Returns the proof. It is called in the body, where the call's own locks are the current ones.
    #[must_use]
    pub fn locked<M: LockMode>(self) -> Locked<N, M> {
        match current() {
            Some(current) => self.among(current.locks()),
            None => outside(),
        }
    }

    /// Returns the proof, once the locks of its call are granted.
    pub(crate) fn among<M: LockMode>(self, locks: &Arc<OwnedLocks>) -> Locked<N, M> {
        // Each name of a call is among its locks; a name that is given twice is there once.
        let (name, kept) = *self.0;
        let lock = lock_of(locks, &name).unwrap_or(&locks.first).clone();
        let locks = locks.clone();
        Locked { held: Box::new(Held { locks, lock, kept }), mode: PhantomData }
    }
}

/// Never reached by an expansion. It does not await forever instead: an await would make every annotated function larger (rows B11, B12).
#[cold]
fn outside() -> ! {
    unreachable!("the proof of a lock is made in the body of its call")
}

impl<N: LockName<Kept: Clone>> Clone for Proof<N> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<N: LockName> fmt::Debug for Proof<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Proof").field(&format_args!("{}", self.0.0)).finish()
    }
}
