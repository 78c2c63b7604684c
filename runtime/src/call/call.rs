//! Call of an annotated function: acquires its lock, polls the body behind the gate, releases.

use std::marker::PhantomData;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::api::{
    Acquisition, Body, Gate, Grant, Locks, OnLost, Proof, Slot, Wanted, mode_of_permits, prove,
};
use crate::clock::Deadline;
use crate::engine::{Mode, Release};
use crate::values::{LockError, LockName, Name, Wait, setters};

/// Constant parts of an annotation.
#[doc(hidden)]
pub struct Site {
    pub function: &'static str,
    /// How long to queue, if that is a literal; `None` if it is not given, or is an expression, which [`Lock::wait`] sets.
    pub wait: Option<Wait>,
    /// Lease TTL, if that is a literal; otherwise `None`, as for `wait`.
    pub ttl: Option<Duration>,
}

/// Lock of one annotated call. Boxed, because it lives in the user's future.
#[must_use]
pub struct Lock(Box<dyn Erased>);

/// [`State`] behind a trait object. Otherwise the proof that a user's future is `Send` would reach etcd's client, 70 types deep, and
/// rustc's recursion limit is 128.
trait Erased: Send + Sync {
    fn state(&mut self) -> &mut State;
}

impl Erased for State {
    fn state(&mut self) -> &mut State {
        self
    }
}

struct State {
    phase: Phase,
    release: Release,
    on_lost: OnLost,
}

enum Phase {
    Unlocked,
    Acquiring(Acquisition),
    /// The lock is held, and the body has not begun.
    Granted(Grant),
    Holding {
        /// Boxed, because very many calls may wait, each with space reserved for the next phase.
        gate: Box<Gate>,
        grant: Grant,
    },
    /// The body has ended; its output waits for the release.
    Releasing(oneshot::Receiver<Result<(), LockError>>),
    Done,
}

/// Creates a lock on the engine of the scope, thread or process, unless [`on`](Lock::on) sets another.
#[inline(never)]
pub fn lock(names: &[Name], site: &'static Site) -> Lock {
    let mut wanted = Wanted::new(None, names.to_vec());
    wanted.function = Some(site.function);
    (wanted.wait, wanted.ttl) = (site.wait, site.ttl);
    Lock::of(Phase::Acquiring(Acquisition::of(wanted)))
}

/// Creates no lock: `when = false`.
pub fn unlocked() -> Lock {
    Lock::of(Phase::Unlocked)
}

impl Lock {
    fn of(phase: Phase) -> Self {
        Self(Box::new(State { phase, release: Release::Confirmed, on_lost: OnLost::Cancel }))
    }

    setters! { self:
        released_in_background() { self.0.state().release = Release::Lingering; }
        continued_when_lost() { self.0.state().on_lost = OnLost::Continue; }
        on(locks: &Locks) { self.change(|wanted| wanted.locks = Some(locks.clone())); }
        wait(wait: Duration) { self.change(|wanted| wanted.wait = Some(Wait::For(wait))); }
        ttl(ttl: Duration) { self.change(|wanted| wanted.ttl = Some(ttl)); }
        wait_until(deadline: impl Deadline) { self.change(|wanted| wanted.deadline(deadline)); }
        max_hold(limit: Duration) { self.change(|wanted| wanted.max_hold = Some(limit)); }
        min_hold(time: Duration) { self.change(|wanted| wanted.min_hold = Some(time)); }
        shared() { self.change(|wanted| wanted.mode = Ok(Mode::Shared)); }
        permits(permits: u16) { self.change(|wanted| wanted.mode = mode_of_permits(permits)); }
        reentrant() { self.change(|wanted| wanted.reentrant = true); }
    }

    /// Adds a name, and returns the proof of its lock. Takes the name by value: a borrowed one would stay in the user's future.
    pub fn prove<T: LockName>(mut self, given: T) -> (Self, Proof<T::Held>) {
        let (proof, name) = prove(given);
        self.change(|wanted| wanted.names.push(name));
        (self, proof)
    }

    fn change(&mut self, how: impl FnOnce(&mut Wanted)) {
        if let Phase::Acquiring(acquiring) = &mut self.0.state().phase {
            acquiring.change(how);
        }
    }

    pub(crate) fn ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), LockError>> {
        self.0.state().ready(cx)
    }

    pub(crate) fn is_again(&mut self) -> bool {
        matches!(&self.0.state().phase, Phase::Granted(grant) if grant.is_again())
    }

    /// Polls an annotated call once.
    #[inline(never)]
    pub(crate) fn run<T>(
        &mut self,
        mut body: Pin<&mut (dyn Body<T> + '_)>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<T, LockError>> {
        let state = self.0.state();
        if let Phase::Unlocked = state.phase {
            let output = ready!(body.as_mut().poll(cx));
            body.end(None);
            return Poll::Ready(Ok(output));
        }
        if !matches!(state.phase, Phase::Releasing(_)) {
            let polled = match ready!(state.acquired(cx)) {
                Ok(gate) => ready!(gate.poll(body.as_mut(), cx)),
                Err(error) => Err(error),
            };
            match polled {
                Ok(output) => body.as_mut().end(Some(output)),
                Err(error) => {
                    body.end(None);
                    state.phase = Phase::Done; // locks that are held are released in the background
                    return Poll::Ready(Err(error));
                }
            }
        }
        ready!(state.released(cx));
        body.poll(cx).map(Ok) // takes the output; pending if polled again after completion
    }
}

impl State {
    /// Waits for the grant, if a lock is wanted.
    fn ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), LockError>> {
        if let Phase::Acquiring(acquiring) = &mut self.phase {
            let grant = ready!(Pin::new(acquiring).poll(cx));
            self.phase = Phase::Done;
            self.phase = Phase::Granted(grant?);
        }
        Poll::Ready(Ok(()))
    }

    /// Waits for the grant, then creates the gate through which the body is polled.
    #[inline(never)]
    fn acquired(&mut self, cx: &mut Context<'_>) -> Poll<Result<&mut Gate, LockError>> {
        ready!(self.ready(cx))?;
        if let Phase::Granted(_) = &self.phase
            && let Phase::Granted(grant) = mem::replace(&mut self.phase, Phase::Done)
        {
            let gate = Box::new(grant.gate(self.on_lost));
            self.phase = Phase::Holding { gate, grant };
        }
        match &mut self.phase {
            Phase::Holding { gate, .. } => Poll::Ready(Ok(gate)),
            _ => Poll::Pending, // polled again after completion
        }
    }

    /// Releases the locks once the body is dropped, and waits for the confirmation unless the lock lingers.
    #[inline(never)]
    fn released(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Phase::Holding { .. } = &self.phase
            && let Phase::Holding { gate, mut grant } = mem::replace(&mut self.phase, Phase::Done)
        {
            drop(gate); // before the key goes (invariant I11): a release wakes the gate, and so this same task
            if let Some(confirmation) = grant.give_back(self.release) {
                self.phase = Phase::Releasing(confirmation);
            }
        }
        if let Phase::Releasing(confirmation) = &mut self.phase {
            // The engine completes a failed release; the body's result stands (invariant I10).
            let _ = ready!(Pin::new(confirmation).poll(cx));
            self.phase = Phase::Done;
        }
        Poll::Ready(())
    }
}

/// Future of an annotated call.
///
/// The body is boxed because of rustc's recursion limit of 128. It counts each type inside another type, and a future inside a future as
/// four. For layouts, the count ends at a box. For the proof that a future is `Send`, it does not: see `expand` in the macros.
pub struct Hold<F: Future> {
    /// Dropped before its lock.
    body: Pin<Box<Slot<F>>>,
    lock: Lock,
}

/// Acquires, runs the body, drops it in place, releases. The caller keeps the second value across that await.
pub fn hold<F: Future>(lock: Lock, body: F) -> (Hold<F>, PhantomData<F>) {
    (Hold { body: Box::pin(Slot::Body { body }), lock }, PhantomData)
}

impl<F: Future> Future for Hold<F> {
    type Output = Result<F::Output, LockError>;

    // Compiled for each annotated function; the work is in `run`, which is compiled once.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { body, lock } = &mut *self;
        lock.run(body.as_mut(), cx)
    }
}
