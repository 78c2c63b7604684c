//! Guard of a held lock: runs futures under the lock and releases it.

use std::fmt;
use std::pin::pin;
use std::time::Duration;

#[cfg(any(feature = "sqlx", feature = "sqlx-0-8"))]
use super::fenced::{FenceTarget, Fenced, fenced};
use super::{
    Dialect, Exclusive, Fence, FenceSql, Grant, Granted, Group, LockMode, OnLost, Slot, fence,
    lock_of,
};
use crate::values::{LockError, LockName, LossCause, Name, Token, getters};

/// A held lock, or several locks of one call, which are lost and released together.
///
/// Run protected work with [`hold`](Self::hold), which stops it when the lock is lost. Dropping the guard releases the lock in the
/// background; [`release`](Self::release) waits until etcd has confirmed the release.
///
/// The name is part of the type: `lock(Order { id })` returns a `LockGuard<Order>`, a text a `LockGuard<Name>`, which is a plain
/// `LockGuard`, and [`and`](crate::Acquire::and) a `LockGuard<(Account, Account)>`. A reader gets a `LockGuard<N, Shared>`, with which it
/// cannot call functions that need the exclusive lock: see [`locked`](Self::locked).
#[must_use = "dropping the guard releases the lock"]
pub struct LockGuard<N: Group = Name, M: LockMode = Exclusive> {
    grant: Grant,
    held: N::Held<M>,
}

impl<N: Group, M: LockMode> LockGuard<N, M> {
    pub(crate) fn new(grant: Grant, proofs: N::Proofs) -> Self {
        let held = N::held(proofs, Granted(&grant.locks));
        Self { grant, held }
    }

    /// Returns the proof that the lock is held, for functions that require it: [`&Locked<N>`](crate::Locked), or a tuple of those.
    #[must_use]
    pub fn locked(&self) -> N::Locked<'_, M> {
        N::locked(&self.held)
    }

    /// Runs a future under the lock, without releasing the lock afterwards. If the lock is lost, the future is dropped.
    ///
    /// # Errors
    /// [`LockError::Lost`], or [`LockError::ShuttingDown`] if the grace of a shutdown was over before the future began;
    /// [`LockError::HoldLimit`] once the time given as [`max_hold`](crate::Acquire::max_hold) is over.
    ///
    /// Cancel safe if `future` is.
    pub async fn hold<F: Future>(&self, future: F) -> Result<F::Output, LockError> {
        let mut gate = self.grant.gate(OnLost::Cancel);
        let mut body = pin!(Slot::Body { body: future }); // declared last, so dropped before its gate
        std::future::poll_fn(|cx| gate.poll(body.as_mut(), cx)).await
    }

    /// Returns the fencing token of one of the call's names; `None` for other names. Tokens of different names are not comparable.
    #[must_use]
    pub fn token_of(&self, name: &(impl LockName + ?Sized)) -> Option<Token> {
        lock_of(&self.grant.locks, &name.lock_name()).map(|lock| lock.token)
    }

    /// Returns each name with its token, in the order of the call, equal names once. Tokens of different names are not comparable.
    pub fn tokens(&self) -> impl Iterator<Item = (&Name, Token)> {
        self.grant.locks.tokens()
    }

    getters! { self:
        /// Returns the fencing token (of the first name, if there are several).
        token: Token = self.grant.locks.first.token;
        /// Returns the name (the first, if there are several).
        name: &Name = &self.grant.locks.first.name;
        /// Returns true if the lock is still held. Reads the clock, so the result is right even just after the process was paused.
        is_held: bool = self.grant.locks.are_held();
        /// Returns how long the lock stays held even if etcd cannot be reached again, by the clock. Zero once it is lost or shut down.
        ///
        /// It is meant for a watchdog outside the runtime, such as another process. A renewal extends it about every third of the TTL. An
        /// operator may take the lock away earlier ([`lost`](Self::lost)). Add it to a `CLOCK_BOOTTIME` read *before* this call: then a
        /// pause in between makes the computed end too early, never too late.
        remaining: Duration = self.grant.locks.remaining();
        /// Returns a condition for your own etcd transactions. It is true only while this ownership lasts, or, with
        /// [`min_hold`](crate::Acquire::min_hold), until that time is over: no other call owns the lock before.
        ///
        /// For a [`shared`](crate::Acquire::shared) lock, it is true while any call of this process shares the lock. It proves that no
        /// writer has come, not that this reader is still there. For several names, it covers the first: they are lost together, unless
        /// an operator deletes one by hand.
        fence: Fence = fence(&self.grant.locks, &self.grant.locks.first);
    }

    /// Waits until the lock is lost, and returns the cause. With [`max_hold`](crate::Acquire::max_hold), it also completes when that time
    /// is over ([`LossCause::HoldLimit`]), although the lock stays held until it is released. Cancel safe.
    pub async fn lost(&self) -> LossCause {
        self.grant.until_lost().await
    }

    /// Releases the lock and waits up to two seconds for etcd's confirmation; then the engine continues in the background. A lock that
    /// the task already held ([`reentrant`](crate::Acquire::reentrant)) is not released.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] if the lock was already lost; [`LockError::Backend`] if etcd did not confirm in time. The lock is given up in
    /// any case, and the work is done: do not return this error to a client, who may repeat the request.
    ///
    /// Cancel safe: the release continues.
    pub async fn release(self) -> Result<(), LockError> {
        self.grant.release().await
    }
}

impl<N: Group> LockGuard<N> {
    /// Returns the fences of all names, as SQL for any driver. Execute all of them in the transaction, in this order, so that
    /// transactions with several names do not deadlock.
    pub fn fence_sql(&self, dialect: Dialect) -> Vec<FenceSql<'_>> {
        let call = &*self.grant.locks;
        let mut fences: Vec<_> =
            call.locks().map(|lock| FenceSql { dialect, call, lock }).collect();
        fences.sort_by_key(FenceSql::name);
        fences
    }

    /// Begins a fenced sqlx transaction, `fenced(&pool)`, or fences one that you have begun, best as its first statement. Begin it
    /// yourself if it needs a special mode, does not come from a pool, or carries the fence of another lock. All names of the guard are
    /// fenced. See [`sqlx`](crate::sqlx) (feature `sqlx` or `sqlx-0-8`).
    ///
    /// # Errors
    /// [`FencedError`](crate::sqlx::FencedError) if the lock is lost, a later holder has shown its token, or the database fails. The
    /// transaction is rolled back. Cancel safe: dropping the future rolls back too.
    #[cfg(any(feature = "sqlx", feature = "sqlx-0-8"))]
    pub async fn fenced<T: FenceTarget>(&self, target: T) -> Fenced<T> {
        fenced(target, |dialect| self.fence_sql(dialect)).await
    }
}

impl<N: Group, M: LockMode> fmt::Debug for LockGuard<N, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LockGuard").field(&self.grant).finish()
    }
}
