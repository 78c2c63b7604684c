//! Locked: proof, as a value, that a lock is held.

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
/// In an annotated function `proof = order` binds it; by hand it is [`LockGuard::locked`](crate::LockGuard::locked). It can
/// be neither made nor cloned, and does not leave the body: to return it, store it or give it to a spawned task does
/// not compile.
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
/// /// Runs under the lock of an order only.
/// async fn charge(order: &Locked<Order>, amount: u64) -> Result<(), LockError> {
///     let (id, token) = (order.name().id, order.token().as_i64());
///     // update orders set due = due + $amount, token = $token where id = $id and token <= $token
///     // No row: a later holder has written, and this call is to fail.
///     # let _ = (id, token, amount);
///     Ok(())
/// }
/// ```
///
/// The lock of a template or of a text is a `Locked<Name>`. A reader has a `Locked<N, Shared>` and a permit a `Locked<N, Permit>`, so that
/// neither may call what needs the lock alone; what does not mind is generic: `async fn show<M: LockMode>(order: &Locked<Order, M>)`.
///
/// The lock can be lost while the proof is there: the body is stopped then, at its next await. What must not reach a store too late
/// carries the [`token`](Self::token).
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
        /// The name, with its fields: `order.name().id`. A name that borrows, such as `Stock { sku: &str }`, is kept as its text: its
        /// [`Name`].
        name: &N::Kept = &self.held.kept;
        /// The fencing token.
        token: Token = self.held.lock.token;
        /// Whether the lock is still held: reads the clock, so it is true of now, even right after a pause of the process.
        is_held: bool = self.held.locks.are_held();
        /// How long the lock is held from now on even if etcd cannot be reached again, as
        /// [`LockGuard::remaining`](crate::LockGuard::remaining) says.
        remaining: Duration = self.held.locks.remaining();
        /// A condition for etcd transactions of your own: true only as long as this very ownership of this name lasts, as
        /// [`LockGuard::fence`](crate::LockGuard::fence) says.
        fence: Fence = fence(&self.held.locks, &self.held.lock);
        /// How the call asked for the lock. A `reentrant` reader inside a call that holds the lock alone is a reader all the same.
        mode: Sharing = M::SHARING;
    }

    /// Completes when the lock is lost, or given back because the call is over, with the cause. Cancel safe.
    pub async fn lost(&self) -> LossCause {
        self.held.locks.until_lost().await
    }
}

impl<N: LockName> Locked<N> {
    /// The fence of a transaction, as SQL for any driver.
    pub fn fence_sql(&self, dialect: Dialect) -> FenceSql<'_> {
        FenceSql { dialect, call: &self.held.locks, lock: &self.held.lock }
    }

    /// Begins a fenced transaction of a pool of sqlx, or fences one that you have begun, with the errors of
    /// [`LockGuard::fenced`](crate::LockGuard::fenced). Cancel safe: dropped, it rolls back.
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

/// How a lock is held, in its type: [`Exclusive`], [`Shared`] or [`Permit`].
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
    /// Alone: no other call holds the name.
    Exclusive
    /// With other readers.
    Shared
    /// With one of several permits.
    Permit
}

/// Proof of a lock that is still to be granted. One pointer, because it lives in the user's future (row B12).
pub struct Proof<N: LockName>(Box<(Name, N::Kept)>);

/// Renders a name, once: the name to lock, and what its proof is to give.
pub fn prove<T: LockName>(given: T) -> (Proof<T::Held>, Name) {
    let name = given.lock_name();
    let kept = given.keep(&name);
    let wanted = name.clone();
    (Proof(Box::new((name, kept))), wanted)
}

impl<N: LockName> Proof<N> {
    /// The proof, inside the body, where the call's own locks are the current ones.
    #[must_use]
    pub fn locked<M: LockMode>(self) -> Locked<N, M> {
        match current() {
            Some(current) => self.among(current.locks()),
            None => outside(),
        }
    }

    /// The proof, once the locks of its call are granted.
    pub(crate) fn among<M: LockMode>(self, locks: &Arc<OwnedLocks>) -> Locked<N, M> {
        // Each name of a call is among its locks; one that the call names twice is there once.
        let (name, kept) = *self.0;
        let lock = lock_of(locks, &name).unwrap_or(&locks.first).clone();
        let locks = locks.clone();
        Locked { held: Box::new(Held { locks, lock, kept }), mode: PhantomData }
    }
}

/// No expansion comes here. Not a future that waits for ever: each await would make every annotated function longer (rows B11, B12).
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
