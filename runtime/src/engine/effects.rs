//! Effects: the driver's messages to callers, logs and metrics, performed after the core is unlocked.
//!
//! Each effect may run user code: a waker of any executor, a tracing subscriber, a metrics recorder. The runner performs them one at a
//! time, in the order in which the driver produced them. Callers depend on this order: a grant comes before the wake-up for its loss, a
//! log line before the reply that it is about, and all losses before the end of a shutdown.
//!
//! The thread that performs effects may be paused at any point. That breaks no invariant:
//! - No poll of a body depends on an effect. The gate reads the deadline, the cause of a loss and the end of the engine. All are atomics,
//!   which the core and the driver write while the core is locked. The effect of a loss only wakes.
//! - A grant that is not delivered yet has an owner, the [`Ownership`] inside the effect. If it is lost meanwhile, the caller receives an
//!   ownership that says so. If the caller is gone, dropping the ownership releases it (rule P26).
//! - Timers, and exchanges with an etcd outside the process, are not effects. But the engine's thread also performs effects, after a
//!   response or a timer. A subscriber or a recorder that blocks there delays renewals. The front page warns users of this.

use std::sync::Arc;

use etcd_locked_core::{Owner, Refused};
use tokio::sync::oneshot;

use super::ownership::{Answer, OwnedLocks, Ownership, Reply};
use crate::values::{Cycle, Holder, KEY, LockError, Name, shown};

/// Channel on which a call waits for its locks.
pub(super) type Taker = oneshot::Sender<Answer>;

/// A message to users.
pub(super) enum Effect {
    /// A call receives its locks.
    Granted(Taker, Ownership),
    /// With the refused name: the first one if neither etcd nor the engine says which.
    Refused(Taker, Refused, Option<Name>),
    /// A release, of locks by this name, or the opening of a session has succeeded or failed.
    Done(Reply, Result<(), Refused>, Option<Name>),
    /// Wakes the tasks that wait for a loss, which is already recorded.
    Wake(Arc<OwnedLocks>),
    /// A log line, a measurement, or a reply to the test kit. Log lines have no span: this may run on the thread of another call.
    Run(Box<dyn FnOnce() + Send>),
}

impl Effect {
    pub(super) fn perform(self) {
        // A receiver that is gone needs no reply.
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
        // etcd may contain anything, in keys too.
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
        // Other reasons refuse only calls with a name.
        (Refused::ShuttingDown, _) | (_, None) => LockError::ShuttingDown,
    }
}
