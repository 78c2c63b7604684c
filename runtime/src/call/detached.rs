//! Detached body: runs in its own task, and continues if its caller is dropped.
//!
//! The caller waits for the lock, so a call that is dropped while it waits takes nothing (invariant I4). Once granted, body and lock move
//! to the task. Everything else happens there, whether or not the caller still waits: the body is dropped, then the gate, then the key
//! goes (invariant I11).
//!
//! A reused lock (`reentrant`) belongs to an outer body, which may continue without the call: both would then run at once under one lock.
//! So the inner body stays in the outer body's task.

use std::future::poll_fn;
use std::mem;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tracing::{Instrument as _, Span};

use super::call::Lock;
use crate::api::{Body, Current, Locks, Slot, current};
use crate::values::LockError;

/// Future of an annotated call whose body runs in its own task.
pub struct Detached<T>(Stage<T>);

enum Stage<T> {
    Waiting(Call<T>),
    Running {
        task: JoinHandle<Result<T, LockError>>,
        /// Dropped when the caller no longer awaits the task.
        _awaiting: Arc<()>,
    },
    InPlace(Call<T>),
    Done,
}

/// The part that moves to the task. The body is dropped before its lock.
struct Call<T> {
    body: Pin<Box<dyn Body<T> + Send>>,
    lock: Lock,
}

impl<T> Call<T> {
    fn run(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, LockError>> {
        self.lock.run(self.body.as_mut(), cx)
    }
}

/// Runs the body under the lock, in its own task on the caller's tokio runtime.
pub fn detach<F>(lock: Lock, body: F) -> Detached<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    Detached(Stage::Waiting(Call { body: Box::pin(Slot::Body { body }), lock }))
}

impl<T: Send + 'static> Detached<T> {
    /// Waits for the lock, then starts the task.
    fn start(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), LockError>> {
        let Stage::Waiting(call) = &mut self.0 else { return Poll::Ready(Ok(())) };
        // Checks for the runtime before it requests the lock: a caller outside a runtime takes no lock.
        let runtime = Handle::try_current().map_err(|_| LockError::config(NO_RUNTIME))?;
        ready!(call.lock.ready(cx))?;
        if let Stage::Waiting(mut call) = mem::replace(&mut self.0, Stage::Done) {
            self.0 = if call.lock.is_again() {
                Stage::InPlace(call)
            } else {
                let awaiting = Arc::new(());
                let awaited = Arc::downgrade(&awaiting);
                let task = in_task(call, current().map(|it| it.awaiting(awaited)));
                let task = runtime.spawn(task.instrument(Span::current()));
                Stage::Running { task, _awaiting: awaiting }
            };
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: Send + 'static> Future for Detached<T> {
    type Output = Result<T, LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Err(error) = ready!(self.start(cx)) {
            self.0 = Stage::Done;
            return Poll::Ready(Err(error));
        }
        let ended = match &mut self.0 {
            Stage::Running { task, .. } => ready!(Pin::new(task).poll(cx)),
            Stage::InPlace(call) => Ok(ready!(call.run(cx))),
            _ => return Poll::Pending, // polled again after completion
        };
        self.0 = Stage::Done;
        Poll::Ready(ended.unwrap_or_else(|gone| match gone.try_into_panic() {
            Ok(panic) => resume_unwind(panic), // the caller panics as its body did
            Err(_) => Err(LockError::RuntimeEnded { what: RUNTIME_ENDED }),
        }))
    }
}

/// Runs the call in its task, with the lock and the engine that are current for the caller.
fn in_task<T>(
    mut call: Call<T>,
    current: Option<Current>,
) -> impl Future<Output = Result<T, LockError>> {
    let locks = Locks::chosen();
    poll_fn(move |cx| {
        let mut polled = Poll::Pending;
        let mut run = || polled = call.run(cx);
        let mut run = || match &current {
            Some(current) => current.within(&mut run),
            None => run(),
        };
        match &locks {
            Some(locks) => locks.within(run),
            None => run(),
        }
        polled
    })
}

const NO_RUNTIME: &str = "`detach` runs the body in a tokio task, but this call runs outside a tokio runtime: \
                          call the function on one, or remove `detach`";
const RUNTIME_ENDED: &str = "the body's tokio runtime ended first: call `shutdown` before it ends";
