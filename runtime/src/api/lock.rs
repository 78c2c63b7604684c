//! Call for a lock, or for several at once, with its names and its mode in its type.

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

/// A call for a lock: what the attribute does, by hand.
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
    /// A call for a lock on this engine; see [`lock`](crate::lock()).
    pub fn lock<N: LockName>(&self, name: N) -> Acquire<N::Held> {
        Acquire::new(Some(self.clone()), name)
    }
}

/// A call for a lock, or for several at once: nothing happens before it is awaited.
///
/// Awaited, it answers a [`LockGuard`] or a [`LockError`]. Cancel safe: dropped at any point it leaves no key and no place in a
/// queue behind; its place in the queue is lost.
///
/// `N` is the name's type, such as `Order`, [`Name`] for a text, or a tuple of those, and `M` how it is held. A call that is
/// chosen between modes at run time goes on in a function that is generic, `async fn work<M: LockMode>(call: Acquire<Name, M>)`.
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
    /// This name too: all of them or none. Calls that take several names this way, and whose tasks hold nothing else, never wait for one
    /// another in a cycle; a name that comes twice is locked once. At most 32, or [`LockError::Config`]. The guard has the first eight
    /// names in its type, and their proofs in this order; more by [`and_all`](Self::and_all).
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
        /// These names too, as many as there are at run time, under the same rules as [`and`](Self::and). The guard's type does not
        /// say them: their tokens are [`token_of`](LockGuard::token_of), and they have no proof.
        and_all(names: impl IntoIterator<Item: LockName>) {
            let names = names.into_iter().map(|name| name.lock_name());
            self.wanted.names.extend(names);
        }
        /// Sets the template by which errors, metrics and [`status`](crate::status()) show the names given so far as texts, which have none:
        /// `lock(format!("reports/{day}")).template("reports/<day>")`.
        template(template: &'static str) {
            self.wanted.names.iter_mut().for_each(|name| name.show_as(template));
        }
        /// Queues at most this long, as the option [`wait`](crate::options#wait) says. With no time at all it is a single try.
        wait(wait: Duration) { self.wanted.wait = Some(Wait::For(wait)); }
        /// Queues until served: `wait = "forever"`.
        wait_forever() { self.wanted.wait = Some(Wait::Forever); }
        /// Tries once: `wait = "none"`. If the name is taken, [`LockError::Held`].
        try_once() { self.wanted.wait = Some(Wait::Once); }
        /// Bounds the wait by an `Instant` too, as the option [`wait_until`](crate::options#wait_until) says. Of two deadlines the earlier counts.
        wait_until(deadline: impl Deadline) { self.wanted.deadline(deadline); }
        /// Bounds what runs by way of [`LockGuard::hold`], or until [`LockGuard::lost`], from when the call has its lock, as the option
        /// [`max_hold`](crate::options#max_hold) says. The lock itself stays until it is released.
        max_hold(limit: Duration) { self.wanted.max_hold = Some(limit); }
        /// Uses a lock again that the calling task holds, as the option [`reentrant`](crate::options#reentrant) says.
        reentrant() { self.wanted.reentrant = true; }
        /// Keeps the names locked at least this long from when the call has its lock, as the option [`min_hold`](crate::options#min_hold) says.
        min_hold(time: Duration) { self.wanted.min_hold = Some(time); }
        /// The lease TTL, as the option [`ttl`](crate::options#ttl) says. Rounded up to whole seconds.
        ttl(ttl: Duration) { self.wanted.ttl = Some(ttl); }
    }

    /// Shares the names with other readers, as the option [`shared`](crate::options#shared) says. Instead of [`permits`](Self::permits).
    pub fn shared(self) -> Acquire<N, Shared> {
        self.held_as(Ok(Mode::Shared))
    }

    /// Takes one of 1 to 1,024 permits of each name, as the option [`permits`](crate::options#permits) says. Instead of
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

/// An [`Acquire`] being awaited.
pub struct Acquiring<N: Group = Name, M: LockMode = Exclusive> {
    acquisition: Acquisition,
    /// `None` once it has answered.
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
            (Ok(_), None) => return Poll::Pending, // an acquisition answers once
        })
    }
}
