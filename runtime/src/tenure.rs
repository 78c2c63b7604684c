//! What one call holds, as its holder sees it: one lock or several, which are lost together (rule P13).
//!
//! Invariants:
//! - Lost is absorbing: once [`Tenure::lost`] has answered a cause it always will.
//! - It is decided by the clock, at the call, on the caller's thread: the engine's word only comes on top (rule P28).

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use crate::clock::Clock;
use crate::core::deadline::Deadline;
use crate::core::request::{Key, Revision};
use crate::error::LossCause;
use crate::name::Name;
use crate::token::Token;

/// One ownership of the locks of one call.
#[derive(Debug)]
pub(crate) struct Tenure {
    /// The first of its names: it stands for all where one is to be told.
    pub(crate) first: OwnedLock,
    /// The others, in the order of the call.
    pub(crate) others: Vec<OwnedLock>,
    ground: Ground,
}

/// What it stands on.
#[derive(Debug)]
enum Ground {
    /// A lease, and keys of its own.
    Own(Own),
    /// Those of calls around it, which the task held already (`reentrant`): each of them once, at least one.
    Outer(Vec<Arc<Tenure>>),
}

#[derive(Debug)]
struct Own {
    deadline: Arc<Deadline>,
    clock: Arc<dyn Clock>,
    cause: OnceLock<LossCause>,
    /// The engine has ended: so must a body that goes on without its lock.
    ended: AtomicBool,
    wake: Arc<Notify>,
    /// Somebody may rely on the keys: they are not handed on (rule P22).
    fenced: AtomicBool,
}

/// One lock that is held.
#[derive(Debug, Clone)]
pub(crate) struct OwnedLock {
    pub(crate) name: Name,
    pub(crate) key: Key,
    pub(crate) created: Revision,
    pub(crate) token: Token,
}

impl OwnedLock {
    /// Whether it is that of this name, given with its prefix.
    pub(crate) fn is_of(&self, name: &Key) -> bool {
        let own = self.key.rsplit_once('/');
        own.is_some_and(|(own, _lease)| own == &**name)
    }
}

impl Tenure {
    pub(crate) fn new(
        first: OwnedLock,
        others: Vec<OwnedLock>,
        deadline: Arc<Deadline>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let ground = Ground::Own(Own {
            deadline,
            clock,
            cause: OnceLock::new(),
            ended: AtomicBool::new(false),
            wake: Arc::new(Notify::new()),
            fenced: AtomicBool::new(false),
        });
        Self {
            first,
            others,
            ground,
        }
    }

    /// Of locks that are held already, each with the tenure it was found in. `None` if there are none.
    pub(crate) fn again(found: Vec<(OwnedLock, Arc<Self>)>) -> Option<Self> {
        let mut outer: Vec<Arc<Self>> = Vec::new();
        for (lock, tenure) in &found {
            for own in tenure.owners(lock) {
                if !outer.iter().any(|other| Arc::ptr_eq(other, own)) {
                    outer.push(own.clone());
                }
            }
        }
        let mut locks = found.into_iter().map(|(lock, _)| lock);
        Some(Self {
            first: locks.next()?,
            others: locks.collect(),
            ground: Ground::Outer(outer),
        })
    }

    /// The tenure whose key this is.
    fn owners<'a>(self: &'a Arc<Self>, lock: &OwnedLock) -> Vec<&'a Arc<Self>> {
        match &self.ground {
            Ground::Own(_) => vec![self],
            Ground::Outer(outer) => {
                let has = |own: &&Arc<Self>| own.locks().any(|it| it.key == lock.key);
                outer.iter().filter(has).collect()
            }
        }
    }

    /// Whether it has keys of its own.
    pub(crate) fn is_own(&self) -> bool {
        matches!(self.ground, Ground::Own(_))
    }

    /// Its locks, in the order of the call's names.
    pub(crate) fn locks(&self) -> impl Iterator<Item = &OwnedLock> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// Each name with its token, in the same order.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = (&Name, Token)> {
        self.locks().map(|lock| (&lock.name, lock.token))
    }

    /// How it was lost, if it was: reads the clock.
    pub(crate) fn lost(&self) -> Option<LossCause> {
        let own = match &self.ground {
            Ground::Own(own) => own,
            Ground::Outer(outer) => return outer.iter().find_map(|outer| outer.lost()),
        };
        if let Some(cause) = own.cause.get() {
            return Some(*cause);
        }
        if own.deadline.is_over(own.clock.now()) {
            own.lose(LossCause::Expired);
        }
        own.cause.get().copied()
    }

    /// Whether nothing may run under it any more, lost or not: the engine has ended.
    pub(crate) fn has_ended(&self) -> bool {
        match &self.ground {
            Ground::Own(own) => own.ended.load(Ordering::Acquire),
            Ground::Outer(outer) => outer.iter().any(|outer| outer.has_ended()),
        }
    }

    /// Those of the calls around it that it stands on; none, if it has keys of its own.
    pub(crate) fn outer(&self) -> &[Arc<Self>] {
        match &self.ground {
            Ground::Own(_) => &[],
            Ground::Outer(outer) => outer,
        }
    }

    /// It is lost; the first cause stands. What belongs to a call around it is not lost here.
    pub(crate) fn lose(&self, cause: LossCause) {
        if let Ground::Own(own) = &self.ground {
            own.lose(cause);
        }
    }

    /// Its keys are to go with the body.
    pub(crate) fn fence(&self) {
        match &self.ground {
            Ground::Own(own) => own.fenced.store(true, Ordering::Relaxed),
            Ground::Outer(outer) => outer.iter().for_each(|outer| outer.fence()),
        }
    }

    /// Whether its keys are to go with the body.
    pub(crate) fn is_fenced(&self) -> bool {
        match &self.ground {
            Ground::Own(own) => own.fenced.load(Ordering::Relaxed),
            Ground::Outer(_) => false, // for those around it to say
        }
    }

    /// Completes once it is lost; made before the state is looked at, so that no loss is missed.
    pub(crate) fn wakeup(&self) -> Wakeup {
        let on = |own: &Own| Box::pin(own.wake.clone().notified_owned());
        match &self.ground {
            Ground::Own(own) => Wakeup {
                first: Some(on(own)),
                others: Vec::new(),
            },
            Ground::Outer(outer) => Wakeup {
                first: None,
                others: outer.iter().map(|outer| outer.wakeup()).collect(),
            },
        }
    }

    /// Waits until it is lost.
    pub(crate) async fn until_lost(&self) -> LossCause {
        loop {
            let mut wakeup = self.wakeup();
            if let Some(cause) = self.lost() {
                return cause;
            }
            poll_fn(|cx| wakeup.poll(cx)).await;
        }
    }
}

impl Own {
    fn lose(&self, cause: LossCause) {
        let first = self.cause.set(cause).is_ok();
        let ends = cause == LossCause::Shutdown && !self.ended.swap(true, Ordering::AcqRel);
        if first || ends {
            self.wake.notify_waiters();
        }
    }
}

/// Tells a task of a loss.
#[derive(Debug)]
pub(crate) struct Wakeup {
    first: Option<Pin<Box<OwnedNotified>>>,
    /// Of the calls around it.
    others: Vec<Wakeup>,
}

impl Wakeup {
    /// Ready if something was lost; else a loss will wake the task.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut polled = match &mut self.first {
            Some(first) => first.as_mut().poll(cx),
            None => Poll::Pending,
        };
        for other in &mut self.others {
            if other.poll(cx).is_ready() {
                polled = Poll::Ready(());
            }
        }
        polled
    }
}
