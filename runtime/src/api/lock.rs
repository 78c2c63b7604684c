//! Builder of a call for one lock or several, with names and mode in its type.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::{
    Acquisition, Append, Exclusive, Group, LockGuard, LockMode, Locks, Permit, Shared, Wanted,
    mode_of_permits, prove,
};
use crate::clock::Deadline;
use crate::engine::Mode;
use crate::values::{LockError, LockName, Name, Wait, setters};

/// Requests a lock without the attribute. Await the call to get a [`LockGuard`].
///
/// ```no_run
/// # use std::time::Duration;
/// # async fn print() {}
/// # async fn example(day: u32) -> Result<(), etcd_locked::LockError> {
/// let held = etcd_locked::lock(format!("statements/{day}")).wait(Duration::from_secs(5)).await?;
/// held.hold(print()).await?; // stops when the lock is lost
/// held.release().await
/// # }
/// ```
pub fn lock<N: LockName>(name: N) -> Acquire<N::Held> {
    Acquire::new(None, name)
}

impl Locks {
    /// Requests a lock on this engine; see [`lock`](crate::lock()).
    pub fn lock<N: LockName>(&self, name: N) -> Acquire<N::Held> {
        Acquire::new(Some(self.clone()), name)
    }
}

/// A call for one lock, or for several at once. Nothing happens before it is awaited.
///
/// Awaiting it returns a [`LockGuard`] or a [`LockError`]. Cancel safe: a dropped call leaves no key behind, and loses its place in the
/// queue.
///
/// `N` is the name's type, such as `Order`, [`Name`] for a text, or a tuple of those. `M` is the mode. To choose the mode at run time,
/// continue in a generic function, `async fn work<M: LockMode>(call: Acquire<Name, M>)`.
#[must_use = "does nothing until awaited"]
pub struct Acquire<N: Group = Name, M: LockMode = Exclusive> {
    wanted: Wanted,
    proofs: N::Proofs,
    mode: PhantomData<fn() -> M>,
}

impl<N: LockName + 'static> Acquire<N> {
    fn new<T: LockName<Held = N>>(locks: Option<Locks>, name: T) -> Self {
        let (proofs, name) = prove(name);
        Self { wanted: Wanted::new(locks, vec![name]), proofs, mode: PhantomData }
    }
}

impl<N: Group, M: LockMode> Acquire<N, M> {
    /// Adds a name: the call takes all of its names or none. Calls that take several names this way never deadlock with each other, if
    /// their tasks hold nothing else. A name that is given twice is locked once. More than 32 names are a [`LockError::Config`]. The
    /// guard's type has the first eight names, with their proofs in this order; add more by [`and_all`](Self::and_all).
    ///
    /// ```no_run
    /// # etcd_locked::lock_names! { pub Account = "accounts/<id: u64>"; }
    /// # async fn example(from: u64, to: u64) -> Result<(), etcd_locked::LockError> {
    /// let both = etcd_locked::lock(Account { id: from }).and(Account { id: to }).await?;
    /// let (from, to) = both.locked(); // `&Locked<Account>` each
    /// # let _ = (from, to); Ok(()) }
    /// ```
    pub fn and<B: LockName>(mut self, name: B) -> Acquire<N::With, M>
    where
        N: Append<B::Held>,
    {
        let (proof, name) = prove(name);
        self.wanted.names.push(name);
        Acquire { wanted: self.wanted, proofs: N::append(self.proofs, proof), mode: PhantomData }
    }

    setters! { self:
        /// Adds names, as many as there are at run time, under the same rules as [`and`](Self::and). They are not in the guard's type:
        /// read their tokens with [`token_of`](LockGuard::token_of). Proofs exist only for names in the type.
        and_all(names: impl IntoIterator<Item: LockName>) {
            let names = names.into_iter().map(|name| name.lock_name());
            self.wanted.names.extend(names);
        }
        /// Sets the template under which errors, metrics and [`status`](crate::status()) show the names given so far as text:
        /// `lock(format!("reports/{day}")).template("reports/<day>")`.
        template(template: &'static str) {
            self.wanted.names.iter_mut().for_each(|name| name.show_as(template));
        }
        /// Queues for at most this time; see the option [`wait`](crate::options#wait). Zero means a single try.
        wait(wait: Duration) { self.wanted.wait = Some(Wait::For(wait)); }
        /// Queues until the lock is free: `wait = "forever"`.
        wait_forever() { self.wanted.wait = Some(Wait::Forever); }
        /// Tries once: `wait = "none"`. If the name is taken, the result is [`LockError::Held`].
        try_once() { self.wanted.wait = Some(Wait::Once); }
        /// Bounds the wait by an `Instant` too; see the option [`wait_until`](crate::options#wait_until). The earlier deadline applies.
        wait_until(deadline: impl Deadline) { self.wanted.deadline(deadline); }
        /// Limits what runs in [`LockGuard::hold`], counted from when the call gets its lock; see the option
        /// [`max_hold`](crate::options#max_hold). [`LockGuard::lost`] completes at that time. The lock stays until released.
        max_hold(limit: Duration) { self.wanted.max_hold = Some(limit); }
        /// Reuses a lock that the calling task already holds; see the option [`reentrant`](crate::options#reentrant).
        reentrant() { self.wanted.reentrant = true; }
        /// Keeps the names locked for at least this time after the call gets its lock; see the option
        /// [`min_hold`](crate::options#min_hold).
        min_hold(time: Duration) { self.wanted.min_hold = Some(time); }
        /// Sets the lease's TTL, rounded up to whole seconds; see the option [`ttl`](crate::options#ttl).
        ttl(ttl: Duration) { self.wanted.ttl = Some(ttl); }
    }

    /// Shares the names with other readers; see the option [`shared`](crate::options#shared). Replaces [`permits`](Self::permits).
    pub fn shared(self) -> Acquire<N, Shared> {
        self.held_as(Ok(Mode::Shared))
    }

    /// Takes one of 1 to 1,024 permits of each name; see the option [`permits`](crate::options#permits). Replaces
    /// [`shared`](Self::shared).
    pub fn permits(self, permits: u16) -> Acquire<N, Permit> {
        self.held_as(mode_of_permits(permits))
    }

    fn held_as<O: LockMode>(mut self, mode: Result<Mode, String>) -> Acquire<N, O> {
        self.wanted.mode = mode;
        Acquire { wanted: self.wanted, proofs: self.proofs, mode: PhantomData }
    }
}

impl<N: Group<Proofs: Clone>, M: LockMode> Clone for Acquire<N, M> {
    fn clone(&self) -> Self {
        Self { wanted: self.wanted.clone(), proofs: self.proofs.clone(), mode: PhantomData }
    }
}

impl<N: Group, M: LockMode> fmt::Debug for Acquire<N, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Acquire").field(&self.wanted).finish()
    }
}

impl<N: Group, M: LockMode> IntoFuture for Acquire<N, M> {
    type Output = Result<LockGuard<N, M>, LockError>;
    type IntoFuture = Acquiring<N, M>;

    fn into_future(self) -> Acquiring<N, M> {
        Acquiring {
            acquisition: Acquisition::of(self.wanted),
            proofs: Some(self.proofs),
            mode: PhantomData,
        }
    }
}

/// Future of an [`Acquire`].
pub struct Acquiring<N: Group = Name, M: LockMode = Exclusive> {
    acquisition: Acquisition,
    /// `None` once it has completed.
    proofs: Option<N::Proofs>,
    mode: PhantomData<fn() -> M>,
}

/// Nothing in it is pinned: the acquisition may move between polls, and proofs are never polled.
impl<N: Group, M: LockMode> Unpin for Acquiring<N, M> {}

impl<N: Group, M: LockMode> fmt::Debug for Acquiring<N, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Acquiring").field(&self.acquisition).finish()
    }
}

impl<N: Group, M: LockMode> Future for Acquiring<N, M> {
    type Output = Result<LockGuard<N, M>, LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let grant = ready!(Pin::new(&mut self.acquisition).poll(cx));
        Poll::Ready(match (grant, self.proofs.take()) {
            (Ok(grant), Some(proofs)) => Ok(LockGuard::new(grant, proofs)),
            (Err(error), _) => Err(error),
            (Ok(_), None) => return Poll::Pending, // an acquisition completes once
        })
    }
}
