//! Guard of a lock that is held: what runs under it, and how it ends.

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

/// A lock that was taken; or several, by one call, which are lost and released together.
///
/// Run what it protects with [`hold`](Self::hold), which stops when the lock is lost. Dropped, it is released in the
/// background; [`release`](Self::release) waits until etcd has confirmed that.
///
/// It has its name in its type: `lock(Order { id })` gives a `LockGuard<Order>`, a text a `LockGuard<Name>`, which is a plain
/// `LockGuard`, and [`and`](crate::Acquire::and) a `LockGuard<(Account, Account)>`. With a reader's, which is a
/// `LockGuard<N, Shared>`, nothing can be called that needs the lock alone: see [`locked`](Self::locked).
#[must_use = "dropped, it is released"]
pub struct LockGuard<N: Group = Name, M: LockMode = Exclusive> {
    grant: Grant,
    held: N::Held<M>,
}

impl<N: Group, M: LockMode> LockGuard<N, M> {
    pub(crate) fn new(grant: Grant, proofs: N::Proofs) -> Self {
        let held = N::held(proofs, Granted(&grant.locks));
        Self { grant, held }
    }

    /// The proof that the lock is held, for functions that ask for it: [`&Locked<N>`](crate::Locked), of several names a tuple of those.
    #[must_use]
    pub fn locked(&self) -> N::Locked<'_, M> {
        N::locked(&self.held)
    }

    /// Runs a future under the lock; if the lock is lost it is dropped and the answer is [`LockError::Lost`]. Does not
    /// release.
    ///
    /// # Errors
    /// [`LockError::Lost`], or [`LockError::ShuttingDown`] if the grace of a shutdown was over before the future had begun;
    /// [`LockError::HoldLimit`] where [`max_hold`](crate::Acquire::max_hold) was given and has passed.
    ///
    /// Cancel safe as far as `future` is.
    pub async fn hold<F: Future>(&self, future: F) -> Result<F::Output, LockError> {
        let mut gate = self.grant.gate(OnLost::Cancel);
        let mut body = pin!(Slot::Body { body: future }); // dropped before its gate, as it is declared last
        std::future::poll_fn(|cx| gate.poll(body.as_mut(), cx)).await
    }

    /// The fencing token of one of its names; `None` if it is none of them. Tokens of different names are not comparable.
    #[must_use]
    pub fn token_of(&self, name: &(impl LockName + ?Sized)) -> Option<Token> {
        lock_of(&self.grant.locks, &name.lock_name()).map(|lock| lock.token)
    }

    /// Each name with its token, in the order of the call, equal names once. Tokens of different names are not comparable.
    pub fn tokens(&self) -> impl Iterator<Item = (&Name, Token)> {
        self.grant.locks.tokens()
    }

    getters! { self:
        /// The fencing token; of several names the first one's.
        token: Token = self.grant.locks.first.token;
        /// The name; of several the first.
        name: &Name = &self.grant.locks.first.name;
        /// Whether the lock is still held: reads the clock, so it is true of now, even right after a pause of the process.
        is_held: bool = self.grant.locks.are_held();
        /// How long the lock is held from now on even if etcd cannot be reached again: reads the clock. Zero once it is lost or shut down.
        ///
        /// For a watchdog outside the runtime, such as another process. A renewal moves the end on at about each third of the TTL; an
        /// operator may take the lock away before ([`lost`](Self::lost)). Add it to a `CLOCK_BOOTTIME` read *before* this call: a pause in
        /// between then makes the point in time too early, never too late.
        remaining: Duration = self.grant.locks.remaining();
        /// A condition for etcd transactions of your own: true only as long as this very ownership lasts, or, with
        /// [`min_hold`](crate::Acquire::min_hold), until that time is over: no other call owns the lock before.
        ///
        /// Of a [`shared`](crate::Acquire::shared) lock it is true as long as any call of this process shares it: it says that no
        /// writer has come, not that this reader is still there. Of several names it covers the first: they are lost together,
        /// unless an operator deletes one by hand.
        fence: Fence = fence(&self.grant.locks, &self.grant.locks.first);
    }

    /// Completes when the lock is lost, with the cause; never, if it is not. Where [`max_hold`](crate::Acquire::max_hold) was given, it
    /// completes when that has passed too ([`LossCause::HoldLimit`]), though the lock stays until it is released. Cancel safe.
    pub async fn lost(&self) -> LossCause {
        self.grant.until_lost().await
    }

    /// Releases the lock and waits until etcd has confirmed that, for two seconds at most; then the engine goes on by itself. A lock that
    /// the task held already ([`reentrant`](crate::Acquire::reentrant)) is not released.
    ///
    /// # Errors
    /// [`LockError::Lost`] if the lock had been lost before; [`LockError::Backend`] if etcd did not confirm in time. The lock is given up
    /// in any case, and the work is done: do not answer a request with this error, which a client may repeat.
    ///
    /// Cancel safe: the release goes on.
    pub async fn release(self) -> Result<(), LockError> {
        self.grant.release().await
    }
}

impl<N: Group> LockGuard<N> {
    /// The fences of its names, as SQL for any driver: a transaction executes all, in this order, which keeps transactions of several names
    /// from waiting for each other in a cycle.
    pub fn fence_sql(&self, dialect: Dialect) -> Vec<FenceSql<'_>> {
        let call = &*self.grant.locks;
        let mut fences: Vec<_> =
            call.locks().map(|lock| FenceSql { dialect, call, lock }).collect();
        fences.sort_by_key(FenceSql::name);
        fences
    }

    /// Begins a fenced transaction of a pool of sqlx, `fenced(&pool)`, or fences one that you have begun, best as its first statement: one
    /// that needs a mode of its own, comes from no pool, or has the fence of another lock already. See [`sqlx`](crate::sqlx) (feature `sqlx`
    /// or `sqlx-0-8`). Of several names all are fenced.
    ///
    /// # Errors
    /// [`FencedError`](crate::sqlx::FencedError): the lock is lost, a later holder has shown its token, or the database fails. The
    /// transaction is rolled back. Cancel safe: dropped, it rolls back too.
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
