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

use std::fmt;
use std::sync::Arc;

use etcd_locked_core::{Blocker, Cause, Key, Owner, Refused};
use tokio::sync::oneshot;

use super::losses::Losses;
use super::ownership::{Answer, OwnedLocks, Ownership, Reply};
use crate::metrics;
use crate::values::cycle::Cycle;
use crate::values::drained::Drained;
use crate::values::error::LockError;
use crate::values::holder::Holder;
use crate::values::name::Name;
use crate::values::text::{KEY, shown};

/// Where a call waits for its locks.
pub(super) type Taker = oneshot::Sender<Answer>;

/// One thing to do for users.
pub(super) enum Effect {
    Granted(Taker, Ownership),
    /// With the refused name: the first where etcd or the engine does not say which; none when the engine closes.
    Refused(Taker, Refused, Option<Name>),
    /// The caller of a cancelled call has gone. The drop of its reply may wake a task all the same.
    Cancelled(Taker),
    /// A release or an opened session is confirmed.
    Confirmed(Reply),
    Failed(Reply, Refused, Option<Name>),
    /// The engine has ended.
    Stopped(oneshot::Sender<Drained>, Drained),
    /// Wakes the tasks that wait for a loss, which is noted already.
    Wake(Arc<OwnedLocks>),
    LogLosses(Losses),
    /// etcd answers, and refuses a call.
    LogRefusal(Cause),
    /// A shutdown has come to its end.
    LogEnd(Drained),
    LogRelease {
        name: Name,
        confirmed: bool,
    },
    /// A lock name has very many keys of other names below it.
    LogCrowd(Key),
    /// A search for a deadlock has left keys out.
    LogBound,
    /// etcd has lost its history.
    LogHistory,
    /// A measurement, or an answer to the test kit.
    Run(Box<dyn FnOnce() + Send>),
}

impl Effect {
    pub(super) fn perform(self) {
        // A receiver that has gone needs no answer.
        match self {
            Self::Granted(reply, ownership) => drop(reply.send(Ok(ownership))),
            Self::Refused(reply, why, name) => drop(reply.send(Err(refusal(why, name).into()))),
            Self::Cancelled(reply) => drop(reply),
            Self::Confirmed(reply) => drop(reply.send(Ok(()))),
            Self::Failed(reply, why, name) => drop(reply.send(Err(refusal(why, name)))),
            Self::Stopped(reply, drained) => drop(reply.send(drained)),
            Self::Wake(locks) => locks.wake(),
            // Lines of no span: this may run on the thread of another call.
            Self::LogLosses(losses) => losses.report(),
            Self::LogRefusal(cause) => {
                tracing::warn!(parent: None, code = "etcd.refused", %cause, "etcd refuses what calls need: they are refused");
            }
            Self::LogEnd(drained) => match drained.is_complete() {
                true => {
                    tracing::info!(parent: None, %drained, "the shutdown is complete");
                }
                false => {
                    tracing::warn!(parent: None, code = "shutdown.incomplete", %drained, "the shutdown has ended, and something is left in etcd for its TTL");
                }
            },
            Self::LogRelease { name, confirmed } => match confirmed {
                true => tracing::debug!(parent: None, lock = %name, "released"),
                false => tracing::debug!(parent: None, lock = %name, "not released yet"),
            },
            Self::LogCrowd(name) => tracing::warn!(
                parent: None,
                code = "name.nested",
                lock = %shown(&name, KEY),
                "a lock name has very many others below it: it is read once a second only"
            ),
            Self::LogBound => {
                tracing::warn!(parent: None, code = "deadlock.bound", "a search for a deadlock has left keys out");
            }
            Self::LogHistory => {
                tracing::error!(
                    parent: None,
                    code = "etcd.history_lost",
                    "etcd has lost its history: it was wiped, or restored from a snapshot. Every lock held until now is lost. Tokens may \
                     go backwards: what remembers the last token of before refuses new ones, until they have passed it. `etcdutl \
                     snapshot restore --bump-revision .. --mark-compacted`, with the services stopped, keeps tokens going up"
                );
                metrics::history_lost();
            }
            Self::Run(run) => run(),
        }
    }
}

impl fmt::Debug for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Effect").finish_non_exhaustive()
    }
}

fn refusal(why: Refused, name: Option<Name>) -> LockError {
    let known = |owner: Option<Owner>| {
        let holder = |owner: &Owner| Holder::parse(&owner.record);
        let holder = owner.as_ref().and_then(holder);
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
        (Refused::Deadlock { cycle, .. }, Some(name)) => LockError::Deadlock {
            name,
            cycle: Cycle::of(cycle.iter().map(|blocker| {
                let Blocker { key, record } = blocker;
                (key.clone(), Holder::parse(record))
            })),
        },
        (Refused::Overloaded, Some(name)) => LockError::Overloaded { name },
        (Refused::PermissionDenied(source), name) => LockError::PermissionDenied { name, source },
        (Refused::SessionDenied(source), _) => LockError::PermissionDenied { name: None, source },
        (Refused::Backend(source), _) => LockError::Backend { source },
        // Only named calls are refused for the other reasons.
        (
            Refused::ShuttingDown
            | Refused::Held { .. }
            | Refused::Timeout { .. }
            | Refused::Deadlock { .. }
            | Refused::Overloaded,
            _,
        ) => LockError::ShuttingDown,
    }
}
