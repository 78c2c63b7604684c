//! Call for a lock, or for several at once, with its names and its mode in its type.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::acquisition::{Acquisition, Share, Wanted};
use super::group::{Append, Group};
use super::guard::LockGuard;
use super::locked::{Exclusive, LockMode, Permit, Shared, prove};
use super::locks::Locks;
use crate::clock::Deadline;
use crate::values::error::LockError;
use crate::values::name::{LockName, Name};
use crate::values::wait::Wait;

/// A call for a lock: what the attribute does, by hand.
///
/// ```no_run
/// # use std::time::Duration;
/// # async fn example(id: u64) -> Result<(), etcd_locked::LockError> {
/// let held = etcd_locked::lock(format!("orders/{id}")).wait(Duration::from_secs(5)).await?;
/// # drop(held); Ok(()) }
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
    /// This name too: all of them or none. Calls that take several names this way, and whose tasks hold nothing
    /// else, never wait for one another in a cycle; a name that comes twice is locked once. At most 32, or [`LockError::Config`].
    ///
    /// The guard has all names in its type, and their proofs in this order; eight at most, and any number by
    /// [`and_all`](Self::and_all).
    ///
    /// ```no_run
    /// # use etcd_locked::{LockError, Locked};
    /// etcd_locked::lock_names! {
    ///     pub Account = "accounts/<id: u64>";
    /// }
    ///
    /// # async fn debit(_: &Locked<Account>) -> Result<(), LockError> { Ok(()) }
    /// # async fn credit(_: &Locked<Account>) -> Result<(), LockError> { Ok(()) }
    /// # async fn example(from: u64, to: u64) -> Result<(), LockError> {
    /// let both = etcd_locked::lock(Account { id: from }).and(Account { id: to }).await?;
    /// let (from, to) = both.locked();
    /// both.hold(async {
    ///     debit(from).await?;
    ///     credit(to).await
    /// }).await??;
    /// # Ok(()) }
    /// ```
    pub fn and<B: LockName>(mut self, name: B) -> Acquire<N::With, M>
    where
        N: Append<B::Held>,
    {
        let (proof, name) = prove(name);
        self.wanted.names.push(name);
        Acquire { wanted: self.wanted, proofs: N::append(self.proofs, proof), mode: PhantomData }
    }

    /// These names too, as many as there are at run time, under the same rules as [`and`](Self::and). The guard's type does not
    /// say them: their tokens are [`token_of`](LockGuard::token_of), and they have no proof.
    ///
    /// ```no_run
    /// # async fn example(first: u64, others: &[u64]) -> Result<(), etcd_locked::LockError> {
    /// let others = others.iter().map(|id| format!("accounts/{id}"));
    /// let all = etcd_locked::lock(format!("accounts/{first}")).and_all(others).await?;
    /// # drop(all); Ok(()) }
    /// ```
    pub fn and_all(mut self, names: impl IntoIterator<Item: LockName>) -> Self {
        let names = names.into_iter().map(|name| name.lock_name());
        self.wanted.names.extend(names);
        self
    }

    /// Queues at most this long; then [`LockError::Timeout`]. Default: as configured, 10 s unless set. With no time at all
    /// it is a single try, as with [`try_once`](Self::try_once).
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wanted.wait = Some(Wait::For(wait));
        self
    }

    /// Queues until served. Where etcd cannot be reached, it is refused with [`LockError::Backend`] after about the connect
    /// time-out all the same.
    pub fn wait_forever(mut self) -> Self {
        self.wanted.wait = Some(Wait::Forever);
        self
    }

    /// Tries once; if the name is taken, [`LockError::Held`]. Where etcd does not decide it, [`LockError::Backend`] after about the connect
    /// time-out.
    pub fn try_once(mut self) -> Self {
        self.wanted.wait = Some(Wait::Once);
        self
    }

    /// Bounds the wait by a point in time too, such as the end of the request that is served: an `Instant` of std or tokio.
    /// The earlier of it and [`wait`](Self::wait) wins, and of two deadlines the earlier.
    ///
    /// Over while the call queues: [`LockError::Timeout`], as for a wait that is over. Over when the call is first awaited: the
    /// same at once, `waited` being zero, without a word to etcd. [`try_once`](Self::try_once) does not wait, and reads it at the start only.
    /// It does not bound the body.
    ///
    /// ```no_run
    /// # use std::time::{Duration, Instant};
    /// # async fn example(id: u64, deadline: Instant) -> Result<(), etcd_locked::LockError> {
    /// let held = etcd_locked::lock(format!("orders/{id}")).deadline(deadline).await?;
    /// # drop(held); Ok(()) }
    /// ```
    pub fn deadline(mut self, deadline: impl Deadline) -> Self {
        self.wanted.deadline(deadline);
        self
    }

    /// The hold limit: what runs under the lock by way of [`LockGuard::hold`] is dropped this long after the call was given the
    /// lock, with [`LockError::HoldLimit`]. The lock itself stays until it is released, and its lease is renewed until then.
    ///
    /// It is checked before each poll, and wakes a body that waits; a poll that does not return is not interrupted.
    pub fn at_most(mut self, limit: Duration) -> Self {
        self.wanted.at_most = Some(limit);
        self
    }

    /// Where the calling task holds the lock already, it is used again, and nothing is asked of etcd; without this the call is
    /// refused with [`LockError::SelfDeadlock`].
    ///
    /// What one gets then is the lock of the body around: it has its tokens; when it is lost, or that body ends, this one is lost too;
    /// dropped or released, it changes nothing. `wait`, `deadline` and `ttl` mean nothing then; [`at_most`](Self::at_most)
    /// bounds what runs under this one, and [`at_least`](Self::at_least) keeps that lock. "Holds" is as for [`current`](crate::current): the poll stack decides. Two bodies that one
    /// task joins may so run under one lock, alternating at their awaits.
    ///
    /// Of several names ([`and`](Self::and)) the task holds all, by one call or by several, or none, which are then taken
    /// as always; if it holds only some, the call is refused with [`LockError::SelfDeadlock`]: to take the others
    /// while those are held is to take locks one after the other, which is how deadlocks begin. Refused likewise is a call in
    /// another mode than that of the lock held, unless that is held alone: [`permits`](Self::permits) of another number are another
    /// mode. And in a detached body the locks of the caller cannot be used again, because the caller may go on without it.
    pub fn reentrant(mut self) -> Self {
        self.wanted.reentrant = true;
        self
    }

    /// Keeps what was locked locked for at least this long, counted from when the call was given the lock, also if it is
    /// released earlier: for what must not happen again too soon, or on a host whose clock is late. No call waits for that: the
    /// release is done once etcd keeps the lock by itself, which takes two round trips.
    ///
    /// From then on the lock outlives this process, and [`shutdown`](crate::shutdown) keeps the promise too; after a crash
    /// before that only the TTL holds. Until the time is over no call gets the lock, in this process or another; a lock that is lost
    /// promises nothing any more. A year at most, and not longer than [`at_most`](Self::at_most), or [`LockError::Config`].
    ///
    /// Of [`permits`](Self::permits) it keeps the one that the call had: so many calls in that time, over all processes, and not only
    /// so many at once. A [`shared`](Self::shared) lock keeps nothing: with that it is [`LockError::Config`].
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn example() -> Result<(), etcd_locked::LockError> {
    /// let held = etcd_locked::lock("reports/today").at_least(Duration::from_secs(60)).await?;
    /// held.hold(async { /* a moment's work */ }).await?;
    /// held.release().await // and no call makes the report again within the minute
    /// # }
    /// ```
    pub fn at_least(mut self, time: Duration) -> Self {
        self.wanted.at_least = Some(time);
        self
    }

    /// Shares the names with others that share them: a reader, of any number. A call that wants a name for itself waits for the
    /// readers before it, and readers who come after it wait for it: neither starves. Instead of [`permits`](Self::permits).
    ///
    /// Readers of one process that ask for the same names and TTL share a key in etcd, which goes with the last of them. Their tokens differ,
    /// and each is greater than that of the call that had the name for itself before, and less than that of who has it next; those
    /// of readers in different processes say nothing of each other. A reader that locks the name again is refused with
    /// [`LockError::SelfDeadlock`], unless it is a [`reentrant`](Self::reentrant) reader.
    ///
    /// ```no_run
    /// # async fn example(day: u32) -> Result<(), etcd_locked::LockError> {
    /// let report = etcd_locked::lock(format!("reports/{day}")).shared().await?;
    /// # drop(report); Ok(()) }
    /// ```
    pub fn shared(self) -> Acquire<N, Shared> {
        self.held_as(Share::Readers)
    }

    /// Takes one of so many permits of each name, 1 to 1,024: at most so many calls have them, over all processes, and they are
    /// served in order. A call that wants the name for itself, or shares it, waits for the permits before it, and the other way
    /// round. Instead of [`shared`](Self::shared).
    ///
    /// Calls of one name may differ in the number, as in a rolling deployment. The call's own number counts: it is served when fewer
    /// than that many older permits are held or asked for. Any other number than 1 to 1,024 is [`LockError::Config`]. Tokens are as with [`shared`](Self::shared); a permit has no number of its own.
    ///
    /// Calls that hold a permit, or wait for one, are not searched for deadlocks: those end when a wait does.
    pub fn permits(self, permits: u16) -> Acquire<N, Permit> {
        self.held_as(Share::Permits(permits))
    }

    /// The lease TTL: how long a crashed holder blocks others. Rounded up to whole seconds, 2 s to 300 s. Default: as
    /// configured, 15 s unless set.
    ///
    /// Below 5 s a change of etcd's leader may cost the lock.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.wanted.ttl = Some(ttl);
        self
    }

    fn held_as<O: LockMode>(mut self, share: Share) -> Acquire<N, O> {
        self.wanted.share = share;
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
