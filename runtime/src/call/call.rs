//! Call of an annotated function: acquires its lock, polls the body under the gate, releases.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::sync::oneshot;

use crate::api::{
    Acquisition, Body, Gate, Grant, Locks, OnLost, Proof, Slot, Wanted, mode_of_permits, prove,
};
use crate::clock::Deadline;
use crate::engine::{Mode, Release};
use crate::values::{LockError, LockName, Name, Wait, setters};

/// What is constant in an annotation.
#[doc(hidden)]
pub struct Site {
    pub function: &'static str,
    /// How long to queue, if that is a literal; `None`: not given, or an expression, which [`Lock::wait`] brings.
    pub wait: Option<Wait>,
    /// Lease TTL, if that is a literal; `None`: likewise.
    pub ttl: Option<Duration>,
}

/// The lock of one annotated call. One pointer, because it lives in the user's future.
#[must_use]
pub struct Lock(Box<State>);

struct State {
    phase: Phase,
    release: Release,
    on_lost: OnLost,
}

enum Phase {
    Unlocked,
    Acquiring(Acquisition),
    /// Held, before the body has begun.
    Granted(Grant),
    Holding {
        /// Boxed, because very many calls may wait, each with room for what comes then.
        gate: Box<Gate>,
        grant: Grant,
    },
    /// The body has ended, and its output waits for the release.
    Releasing(oneshot::Receiver<Result<(), LockError>>),
    Done,
}

/// A lock on the engine of the scope, thread or process, unless the call says [`on`](Lock::on).
#[inline(never)]
pub fn lock(names: &[Name], site: &'static Site) -> Lock {
    let mut wanted = Wanted::new(None, names.to_vec());
    wanted.function = Some(site.function);
    (wanted.wait, wanted.ttl) = (site.wait, site.ttl);
    Lock::of(Phase::Acquiring(Acquisition::of(wanted)))
}

/// No lock: `when = false`.
pub fn unlocked() -> Lock {
    Lock::of(Phase::Unlocked)
}

impl Lock {
    fn of(phase: Phase) -> Self {
        Self(Box::new(State { phase, release: Release::Confirmed, on_lost: OnLost::Cancel }))
    }

    setters! { self:
        released_in_background() { self.0.release = Release::Lingering; }
        continued_when_lost() { self.0.on_lost = OnLost::Continue; }
        on(locks: &Locks) { self.change(|wanted| wanted.locks = Some(locks.clone())); }
        wait(wait: Duration) { self.change(|wanted| wanted.wait = Some(Wait::For(wait))); }
        ttl(ttl: Duration) { self.change(|wanted| wanted.ttl = Some(ttl)); }
        deadline(deadline: impl Deadline) { self.change(|wanted| wanted.deadline(deadline)); }
        at_most(limit: Duration) { self.change(|wanted| wanted.at_most = Some(limit)); }
        at_least(time: Duration) { self.change(|wanted| wanted.at_least = Some(time)); }
        shared() { self.change(|wanted| wanted.mode = Ok(Mode::Shared)); }
        permits(permits: u16) { self.change(|wanted| wanted.mode = mode_of_permits(permits)); }
        reentrant() { self.change(|wanted| wanted.reentrant = true); }
    }

    /// This name too, and the proof of its lock. By value: what an expansion borrows stays in the user's future.
    pub fn prove<T: LockName>(mut self, given: T) -> (Self, Proof<T::Held>) {
        let (proof, name) = prove(given);
        self.change(|wanted| wanted.names.push(name));
        (self, proof)
    }

    fn change(&mut self, how: impl FnOnce(&mut Wanted)) {
        if let Phase::Acquiring(acquiring) = &mut self.0.phase {
            acquiring.change(how);
        }
    }

    /// Waits for the grant, if a lock is wanted.
    pub(crate) fn ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), LockError>> {
        if let Phase::Acquiring(acquiring) = &mut self.0.phase {
            let grant = ready!(Pin::new(acquiring).poll(cx));
            self.0.phase = Phase::Done;
            self.0.phase = Phase::Granted(grant?);
        }
        Poll::Ready(Ok(()))
    }

    pub(crate) fn is_again(&self) -> bool {
        matches!(&self.0.phase, Phase::Granted(grant) if grant.is_again())
    }

    /// One poll of an annotated call.
    #[inline(never)]
    pub(crate) fn run<T>(
        &mut self,
        mut body: Pin<&mut (dyn Body<T> + '_)>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<T, LockError>> {
        if let Phase::Unlocked = self.0.phase {
            let output = ready!(body.as_mut().poll(cx));
            body.end(None);
            return Poll::Ready(Ok(output));
        }
        if !matches!(self.0.phase, Phase::Releasing(_)) {
            let polled = match ready!(self.acquired(cx)) {
                Ok(gate) => ready!(gate.poll(body.as_mut(), cx)),
                Err(error) => Err(error),
            };
            match polled {
                Ok(output) => body.as_mut().end(Some(Box::new(output))),
                Err(error) => {
                    body.end(None);
                    self.0.phase = Phase::Done; // what it holds, if anything, is released in the background
                    return Poll::Ready(Err(error));
                }
            }
        }
        ready!(self.released(cx));
        body.poll(cx).map(Ok) // takes the output; pending, if polled after it was done
    }

    /// Waits for the grant, then makes the gate, under which the body may be polled.
    #[inline(never)]
    fn acquired(&mut self, cx: &mut Context<'_>) -> Poll<Result<&mut Gate, LockError>> {
        ready!(self.ready(cx))?;
        if let Phase::Granted(_) = &self.0.phase
            && let Phase::Granted(grant) = mem::replace(&mut self.0.phase, Phase::Done)
        {
            let gate = Box::new(grant.gate(self.0.on_lost));
            self.0.phase = Phase::Holding { gate, grant };
        }
        match &mut self.0.phase {
            Phase::Holding { gate, .. } => Poll::Ready(Ok(gate)),
            _ => Poll::Pending, // polled after it was done
        }
    }

    /// The body is gone: releases, and waits for the confirmation unless the lock lingers.
    #[inline(never)]
    fn released(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Phase::Holding { .. } = &self.0.phase
            && let Phase::Holding { gate, mut grant } = mem::replace(&mut self.0.phase, Phase::Done)
        {
            drop(gate); // before the key goes (invariant I11): a release wakes the gate, and so this very task
            if let Some(confirmation) = grant.give_back(self.0.release) {
                self.0.phase = Phase::Releasing(confirmation);
            }
        }
        if let Phase::Releasing(confirmation) = &mut self.0.phase {
            // A release that fails is the engine's to finish; the body's result stands (invariant I10).
            let _ = ready!(Pin::new(confirmation).poll(cx));
            self.0.phase = Phase::Done;
        }
        Poll::Ready(())
    }
}

pin_project! {
    pub struct Hold<F: Future> {
        // Dropped before its lock.
        #[pin]
        body: Slot<F>,
        lock: Lock,
    }
}

/// Acquires, runs the body, drops it in place, releases.
pub fn hold<F: Future>(lock: Lock, body: F) -> Hold<F> {
    Hold { body: Slot::Body { body }, lock }
}

impl<F: Future> Future for Hold<F> {
    type Output = Result<F::Output, LockError>;

    // Compiled anew for each annotated function: the work is in `run`, which is not.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        this.lock.run(this.body, cx)
    }
}
