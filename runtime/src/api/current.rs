//! Current locks: those which the running task holds, decided by the poll stack.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::engine::{Engine, Key, OwnedLock, OwnedLocks};
use crate::values::{LockName, LossCause, Name, Token, getters};

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
    locks: Arc<OwnedLocks>,
    engine: Engine,
    outer: Option<Current>,
    /// For the locks of a detached body's caller, and of that one's caller: they count here only while each awaits its body.
    awaited: Vec<Awaited>,
}

/// Dead once the caller of a detached body no longer awaits it.
pub(crate) type Awaited = Weak<()>;

/// The innermost lock under which the running code runs; `None` outside any protected body.
///
/// For code that cannot be handed the proof of its lock ([`Locked`](crate::Locked)), such as what writes a log:
/// `etcd_locked::current().map(|lock| lock.name().to_string())`.
#[must_use]
pub fn current() -> Option<Current> {
    CURRENT.try_with(Clone::clone).ok()
}

impl Current {
    /// The fencing token of one of the names; `None` if it is none of them. Tokens of different names are not comparable.
    #[must_use]
    pub fn token_of(&self, name: &(impl LockName + ?Sized)) -> Option<Token> {
        lock_of(&self.0.locks, &name.lock_name()).map(|lock| lock.token)
    }

    /// Each name with its token, in the order of the call, equal names once. Tokens of different names are not comparable.
    pub fn tokens(&self) -> impl Iterator<Item = (&Name, Token)> {
        self.0.locks.tokens()
    }

    getters! { self:
        /// The fencing token; of several names the first one's.
        token: Token = self.0.locks.first.token;
        /// The name; of several the first.
        name: &Name = &self.0.locks.first.name;
        /// The template of the (first) name; `None` if it was given at run time.
        template: Option<&'static str> = self.0.locks.first.name.template();
        /// Whether the lock is still held: reads the clock, so it is true of now, even right after a pause of the process.
        is_held: bool = self.0.locks.are_held();
    }

    /// Completes when the lock is lost, or given back because the call is over, with the cause. Cancel safe.
    pub async fn lost(&self) -> LossCause {
        self.0.locks.until_lost().await
    }

    pub(crate) fn locks(&self) -> &Arc<OwnedLocks> {
        &self.0.locks
    }

    pub(crate) fn of(locks: Arc<OwnedLocks>, engine: Engine) -> Self {
        Self(Arc::new(Held { locks, engine, outer: current(), awaited: Vec::new() }))
    }

    /// These locks, as a body in another task sees them, which their holder awaits.
    pub(crate) fn awaiting(&self, awaited: Awaited) -> Self {
        let Held { locks, engine, outer, awaited: before } = &*self.0;
        Self(Arc::new(Held {
            locks: locks.clone(),
            engine: engine.clone(),
            outer: outer.clone(),
            awaited: [&before[..], &[awaited]].concat(),
        }))
    }

    /// Tells whether the poll that runs now is inside the bodies whose locks this call uses again, and in their task.
    pub(crate) fn is_inside_outer(&self) -> bool {
        let Held { locks, engine, .. } = &*self.0;
        let runs = |outer: &Arc<OwnedLocks>| {
            held(engine).any(|(Self(held), here)| here && Arc::ptr_eq(&held.locks, outer))
        };
        locks.outer.iter().all(runs)
    }

    /// Runs something with this lock as the current one. Not generic, so that what the task-local costs is compiled once,
    /// and not for every annotated function.
    #[inline(never)]
    pub(crate) fn within(&self, f: &mut dyn FnMut()) {
        CURRENT.sync_scope(self.clone(), f);
    }
}

pub(crate) fn lock_of<'a>(locks: &'a OwnedLocks, name: &Name) -> Option<&'a OwnedLock> {
    locks.locks().find(|lock| lock.name.text() == name.text())
}

/// The locks of this engine that the task holds, of each call that has keys of its own, innermost first.
pub(crate) fn holds(engine: &Engine) -> Vec<Arc<OwnedLocks>> {
    let all = held(engine).map(|(Current(held), _)| held.locks.clone());
    all.filter(|locks| locks.call().is_some()).collect()
}

/// A lock that the task holds, with the others of its call, and whether a body in this very task holds it.
pub(crate) fn held_lock(engine: &Engine, name: &Key) -> Option<(OwnedLock, Arc<OwnedLocks>, bool)> {
    held(engine).find_map(|(Current(held), here)| {
        let lock = held.locks.locks().find(|lock| lock.is_of(name))?;
        Some((lock.clone(), held.locks.clone(), here))
    })
}

/// Keeps those of these names that the task holds locked this long from now on, whenever they are released (rule P39).
pub(crate) fn keep(engine: &Engine, names: &[(Name, Key)], time: Duration) {
    for locks in holds(engine) {
        let kept = locks.locks().any(|lock| names.iter().any(|(_, name)| lock.is_of(name)));
        if let Some(call) = locks.call().filter(|_| kept) {
            engine.keep(call, engine.now() + time);
        }
    }
}

/// The locks of this engine that the task holds, innermost first, each with whether a body of this very task holds them.
fn held(engine: &Engine) -> impl Iterator<Item = (Current, bool)> {
    let mut here = true;
    std::iter::successors(current(), |Current(held)| held.outer.clone())
        .map_while(move |Current(held)| {
            here &= held.awaited.is_empty();
            let mut awaited = held.awaited.iter();
            let counts = awaited.all(|awaited| awaited.strong_count() > 0);
            counts.then_some((Current(held), here))
        })
        // A future that was begun under a lock may be polled after the release.
        .filter(|(Current(held), _)| held.locks.lost() != Some(LossCause::Released))
        .filter(|(Current(held), _)| held.engine.is(engine))
}
