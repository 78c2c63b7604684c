//! Which locks the running task holds: decided by the poll stack.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::core::CallId;
use crate::core::request::Key;
use crate::engine::Engine;
use crate::error::LossCause;
use crate::name::Name;
use crate::tenure::{OwnedLock, Tenure};
use crate::token::Token;

tokio::task_local! {
    static CURRENT: Current;
}

/// The lock under which the running code runs, seen from inside.
///
/// The poll stack decides: it is there in the protected body, in what the body awaits and in branches it joins, but not in
/// tasks it spawns (pass a clone along).
#[derive(Debug, Clone)]
pub struct Current(Arc<Held>);

#[derive(Debug)]
struct Held {
    tenure: Arc<Tenure>,
    engine: Engine,
    call: CallId,
    /// What the task held already.
    outer: Option<Current>,
    /// It belongs to the caller of a detached body, or to a caller of that, and counts here only as long as each awaits its own.
    awaited: Vec<Awaited>,
}

/// Whether the caller of a detached body awaits it still.
#[derive(Debug, Clone)]
pub(crate) struct Awaited(Arc<AtomicBool>);

impl Awaited {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    /// It does so no longer.
    pub(crate) fn end(&self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The innermost lock under which the running code runs; `None` outside any protected body.
///
/// ```
/// # use etcd_locked::{etcd_locked, LockError};
/// #[etcd_locked("accounts/<id>")]
/// async fn withdraw(id: u64, amount: i64) -> Result<String, LockError> {
///     let token = etcd_locked::current().map(|lock| lock.token().as_i64());
///     // update accounts set … where id = $1 and token <= $2
///     Ok(format!("{token:?}"))
/// }
/// ```
#[must_use]
pub fn current() -> Option<Current> {
    CURRENT.try_with(Clone::clone).ok()
}

impl Current {
    /// The fencing token; of several names the first one's.
    #[must_use]
    pub fn token(&self) -> Token {
        self.0.tenure.first.token
    }

    /// Each name with its token, in the order in which the call names them, equal names once. Tokens of different names
    /// are not comparable.
    pub fn tokens(&self) -> impl Iterator<Item = (&Name, Token)> {
        self.0.tenure.tokens()
    }

    /// The name; of several the first.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.0.tenure.first.name
    }

    /// The template of the (first) name; `None` if it was given at run time.
    #[must_use]
    pub fn template(&self) -> Option<&'static str> {
        self.0.tenure.first.name.template()
    }

    /// Whether the lock is still held: reads the clock, so it is true of now, even right after a pause of the process.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.0.tenure.lost().is_none()
    }

    /// Completes when the lock is lost, or given back because the call is over, with the cause. Cancel safe.
    pub async fn lost(&self) -> LossCause {
        self.0.tenure.until_lost().await
    }

    pub(crate) fn of(tenure: Arc<Tenure>, engine: Engine, call: CallId) -> Self {
        Self(Arc::new(Held {
            tenure,
            engine,
            call,
            outer: current(),
            awaited: Vec::new(),
        }))
    }

    /// The same as it is seen from a body in another task, which the caller awaits.
    pub(crate) fn awaiting(&self, awaited: Awaited) -> Self {
        let Held {
            tenure,
            engine,
            call,
            outer,
            awaited: before,
        } = &*self.0;
        Self(Arc::new(Held {
            tenure: tenure.clone(),
            engine: engine.clone(),
            call: *call,
            outer: outer.clone(),
            awaited: [&before[..], &[awaited]].concat(),
        }))
    }

    /// Whether what polls now is inside the bodies whose locks it uses again, if it does, and in their task.
    pub(crate) fn is_inside_outer(&self) -> bool {
        let Held { tenure, engine, .. } = &*self.0;
        let runs = |outer: &Arc<Tenure>| {
            held(engine).any(|(Self(held), here)| here && Arc::ptr_eq(&held.tenure, outer))
        };
        tenure.outer().iter().all(runs)
    }

    /// Runs something with this lock as the current one. Not generic, so that what the task-local costs is compiled once and not for every annotated function (P11).
    #[inline(never)]
    pub(crate) fn within(&self, f: &mut dyn FnMut()) {
        CURRENT.sync_scope(self.clone(), f);
    }
}

/// The calls whose locks of this engine the task holds, innermost first.
pub(crate) fn holds(engine: &Engine) -> Vec<CallId> {
    held(engine)
        .filter(|(Current(held), _)| held.tenure.is_own())
        .map(|(Current(held), _)| held.call)
        .collect()
}

/// The names of this engine that the task holds, innermost first.
pub(crate) fn held_names(engine: &Engine) -> Vec<Name> {
    let own = held(engine).filter(|(Current(held), _)| held.tenure.is_own());
    own.flat_map(|(Current(held), _)| {
        let names = held.tenure.locks().map(|lock| lock.name.clone());
        names.collect::<Vec<_>>()
    })
    .collect()
}

/// A lock that the task holds.
pub(crate) struct HeldLock {
    pub(crate) lock: OwnedLock,
    pub(crate) tenure: Arc<Tenure>,
    /// By a body in this very task: it does not run while another does here.
    pub(crate) here: bool,
}

/// That of this very name.
pub(crate) fn held_lock(engine: &Engine, name: &Key) -> Option<HeldLock> {
    held(engine).find_map(|(Current(held), here)| {
        let lock = held.tenure.locks().find(|lock| lock.is_of(name))?;
        Some(HeldLock {
            lock: lock.clone(),
            tenure: held.tenure.clone(),
            here,
        })
    })
}

/// What the task holds of these names stays locked this long from now on, whenever it is released (rule P39).
pub(crate) fn keep(engine: &Engine, names: &[(Name, Key)], time: Duration) {
    let own = held(engine).filter(|(Current(held), _)| held.tenure.is_own());
    for (Current(held), _) in own {
        let mut locks = held.tenure.locks();
        if locks.any(|lock| names.iter().any(|(_, name)| lock.is_of(name))) {
            engine.keep(held.call, engine.now() + time);
        }
    }
}

/// What the task holds of this engine, innermost first, and whether by a body of its own or by one that awaits its own.
fn held(engine: &Engine) -> impl Iterator<Item = (Current, bool)> {
    let mut here = true;
    std::iter::successors(current(), |Current(held)| held.outer.clone())
        .map_while(move |Current(held)| {
            here &= held.awaited.is_empty();
            let mut awaited = held.awaited.iter();
            let counts = awaited.all(|Awaited(still)| still.load(Ordering::Acquire));
            counts.then_some((Current(held), here))
        })
        // A future that was begun under a lock may be polled on after it.
        .filter(|(Current(held), _)| held.tenure.lost() != Some(LossCause::Released))
        .filter(|(Current(held), _)| held.engine.is(engine))
}
