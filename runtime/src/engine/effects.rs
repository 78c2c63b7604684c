//! Effects: what callers, logs and metrics learn from the driver, performed after the core is unlocked.
//!
//! Each of them may run code of users: a waker of any executor, a tracing subscriber, a metrics recorder. The runner performs
//! them one at a time, in the order in which the driver produced them. The order matters to a caller: a grant comes before the
//! wake-up for its loss, a line in the log before the answer that it is about, all losses before the end of a shutdown.
//!
//! The thread that performs them may be stopped at any point. That breaks no invariant:
//! - No poll of a body depends on an effect. The gate reads the deadline, the cause of a loss and the end of the engine. All are
//!   atomics, which the core and the driver write while the core is locked. The effect of a loss only wakes.
//! - A grant that is not delivered yet has an owner, the [`Ownership`] inside the effect. If it is lost meanwhile, the caller
//!   receives an ownership that says so. If the caller has gone, the ownership's drop releases it (rule P26).
//! - Timers are no effects, nor are exchanges with an etcd outside the process. But the engine's thread performs effects too, after
//!   an answer or a timer: a subscriber or a recorder that blocks there holds up renewals. The front page tells users so.

use std::sync::Arc;

use etcd_locked_core::{Owner, Refused};
use tokio::sync::oneshot;

use super::ownership::{Answer, OwnedLocks, Ownership, Reply};
use crate::values::{Cycle, Holder, KEY, LockError, Name, shown};

/// Where a call waits for its locks.
pub(super) type Taker = oneshot::Sender<Answer>;

/// One thing to do for users.
pub(super) enum Effect {
    /// A call has its locks.
    Granted(Taker, Ownership),
    /// With the refused name: the first where etcd or the engine does not say which.
    Refused(Taker, Refused, Option<Name>),
    /// A release has ended, of locks by this name, or a session is open; or it could not be.
    Done(Reply, Result<(), Refused>, Option<Name>),
    /// Wakes the tasks that wait for a loss, which is noted already.
    Wake(Arc<OwnedLocks>),
    /// A line in the log, a measurement, or an answer to the test kit. Lines are of no span, as it may run on the thread of another call.
    Run(Box<dyn FnOnce() + Send>),
}

impl Effect {
    pub(super) fn perform(self) {
        // A receiver that has gone needs no answer.
        match self {
            Self::Granted(reply, ownership) => drop(reply.send(Ok(ownership))),
            Self::Refused(reply, why, name) => drop(reply.send(Err(refusal(why, name).into()))),
            Self::Done(reply, result, name) => {
                if let Some(name) = &name {
                    let what = if result.is_ok() { "released" } else { "not released yet" };
                    tracing::debug!(parent: None, lock = %name, "{what}");
                }
                drop(reply.send(result.map_err(|why| refusal(why, name))));
            }
            Self::Wake(locks) => locks.wake(),
            Self::Run(run) => run(),
        }
    }
}

fn refusal(why: Refused, name: Option<Name>) -> LockError {
    let known = |owner: Option<Owner>| {
        let holder = owner.as_ref().and_then(|owner| Holder::parse(&owner.record));
        // Anything may stand in etcd, in keys too.
        let unleased = owner.and_then(|owner| owner.unleased);
        (holder, unleased.map(|key| shown(&key, KEY).into()))
    };
    match (why, name) {
        (Refused::Held { owner, .. }, Some(name)) => {
            let (holder, unleased) = known(owner);
            LockError::Held { name, holder, unleased }
        }
        (Refused::Timeout { owner, waited, .. }, Some(name)) => {
            let (holder, unleased) = known(owner);
            LockError::Timeout { name, holder, unleased, waited }
        }
        (Refused::Deadlock { cycle, .. }, Some(name)) => {
            let members = cycle.iter().map(|it| (it.key.clone(), Holder::parse(&it.record)));
            LockError::Deadlock { name, cycle: Cycle::of(members) }
        }
        (Refused::Overloaded, Some(name)) => LockError::Overloaded { name },
        (Refused::PermissionDenied(source), name) => LockError::PermissionDenied { name, source },
        (Refused::SessionDenied(source), _) => LockError::PermissionDenied { name: None, source },
        (Refused::Backend(source), _) => LockError::Backend { source },
        // Only named calls are refused for the other reasons.
        (Refused::ShuttingDown, _) | (_, None) => LockError::ShuttingDown,
    }
}
