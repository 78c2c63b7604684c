//! Current locks: those that the running task holds, found by the poll stack.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::engine::{Engine, Key, OwnedLock, OwnedLocks};
use crate::values::{LockName, LossCause, Name, Token, getters};

tokio::task_local! {
    static CURRENT: Current;
}

/// Handle to the lock under which the running code runs.
///
/// [`current`] finds it by the poll stack: in the protected body, in futures that the body awaits, and in branches that it joins. Tasks
/// that the body spawns do not find it: pass them a clone.
#[derive(Debug, Clone)]
pub struct Current(Arc<Held>);

#[derive(Debug)]
struct Held {
    locks: Arc<OwnedLocks>,
    engine: Engine,
    outer: Option<Current>,
    /// Callers of detached bodies further out. The locks count here only while each of these callers awaits its body.
    awaited: Vec<Awaited>,
}

/// Link to the caller of a detached body; dead once that caller no longer awaits the body.
pub(crate) type Awaited = Weak<()>;

/// Returns the innermost lock under which the running code runs; `None` outside a protected body.
///
/// Use it in code that cannot receive the proof of its lock ([`Locked`](crate::Locked)), such as logging code:
/// `etcd_locked::current().map(|lock| lock.name().to_string())`.
#[must_use]
pub fn current() -> Option<Current> {
    CURRENT.try_with(Clone::clone).ok()
}

impl Current {
    /// Returns the fencing token of one of the call's names; `None` for other names. Tokens of different names are not comparable.
    #[must_use]
    pub fn token_of(&self, name: &(impl LockName + ?Sized)) -> Option<Token> {
        lock_of(&self.0.locks, &name.lock_name()).map(|lock| lock.token)
    }

    /// Returns each name with its token, in the order of the call, equal names once. Tokens of different names are not comparable.
    pub fn tokens(&self) -> impl Iterator<Item = (&Name, Token)> {
        self.0.locks.tokens()
    }

    getters! { self:
        /// Returns the fencing token (of the first name, if there are several).
        token: Token = self.0.locks.first.token;
        /// Returns the name (the first, if there are several).
        name: &Name = &self.0.locks.first.name;
        /// Returns the template of the (first) name; `None` for a run-time name.
        template: Option<&'static str> = self.0.locks.first.name.template();
        /// Returns true if the lock is still held. Reads the clock, so the result is right even just after the process was paused.
        is_held: bool = self.0.locks.are_held();
    }

    /// Waits until the lock is lost, or released because the call is over, and returns the cause. Cancel safe.
    pub async fn lost(&self) -> LossCause {
        self.0.locks.until_lost().await
    }

    pub(crate) fn locks(&self) -> &Arc<OwnedLocks> {
        &self.0.locks
    }

    pub(crate) fn of(locks: Arc<OwnedLocks>, engine: Engine) -> Self {
        Self(Arc::new(Held { locks, engine, outer: current(), awaited: Vec::new() }))
    }

    /// Returns these locks for a detached body, which runs in another task while their holder awaits it.
    pub(crate) fn awaiting(&self, awaited: Awaited) -> Self {
        let Held { locks, engine, outer, awaited: before } = &*self.0;
        Self(Arc::new(Held {
            locks: locks.clone(),
            engine: engine.clone(),
            outer: outer.clone(),
            awaited: [&before[..], &[awaited]].concat(),
        }))
    }

    /// Returns true if the current poll is inside the bodies whose locks this call reuses, and in the same task.
    pub(crate) fn is_inside_outer(&self) -> bool {
        let Held { locks, engine, .. } = &*self.0;
        let runs = |outer: &Arc<OwnedLocks>| {
            held(engine).any(|(Self(held), here)| here && Arc::ptr_eq(&held.locks, outer))
        };
        locks.outer.iter().all(runs)
    }

    /// Runs `f` with this lock as the current one. Not generic, so that the task-local's code is compiled once and not for each function.
    #[inline(never)]
    pub(crate) fn within(&self, f: &mut dyn FnMut()) {
        CURRENT.sync_scope(self.clone(), f);
    }
}

pub(crate) fn lock_of<'a>(locks: &'a OwnedLocks, name: &Name) -> Option<&'a OwnedLock> {
    locks.locks().find(|lock| lock.name.text() == name.text())
}

/// Returns the locks of this engine that the task holds, innermost first. Reused locks (`reentrant`) are left out.
pub(crate) fn holds(engine: &Engine) -> Vec<Arc<OwnedLocks>> {
    let all = held(engine).map(|(Current(held), _)| held.locks.clone());
    all.filter(|locks| locks.call().is_some()).collect()
}

/// Returns a lock that the task holds, all locks of its call, and whether a body in this same task holds it.
pub(crate) fn held_lock(engine: &Engine, name: &Key) -> Option<(OwnedLock, Arc<OwnedLocks>, bool)> {
    held(engine).find_map(|(Current(held), here)| {
        let lock = held.locks.locks().find(|lock| lock.is_of(name))?;
        Some((lock.clone(), held.locks.clone(), here))
    })
}

/// Keeps those of these names that the task holds locked for `time` from now, even if they are released earlier (rule P39).
pub(crate) fn keep(engine: &Engine, names: &[(Name, Key)], time: Duration) {
    for locks in holds(engine) {
        let kept = locks.locks().any(|lock| names.iter().any(|(_, name)| lock.is_of(name)));
        if let Some(call) = locks.call().filter(|_| kept) {
            engine.keep(call, engine.now() + time);
        }
    }
}

/// Returns the locks of this engine that the task holds, innermost first, each with whether a body of this same task holds it.
fn held(engine: &Engine) -> impl Iterator<Item = (Current, bool)> {
    let mut here = true;
    std::iter::successors(current(), |Current(held)| held.outer.clone())
        .map_while(move |Current(held)| {
            here &= held.awaited.is_empty();
            let mut awaited = held.awaited.iter();
            let counts = awaited.all(|awaited| awaited.strong_count() > 0);
            counts.then_some((Current(held), here))
        })
        // A future that started under a lock may be polled after the release.
        .filter(|(Current(held), _)| held.locks.lost() != Some(LossCause::Released))
        .filter(|(Current(held), _)| held.engine.is(engine))
}
