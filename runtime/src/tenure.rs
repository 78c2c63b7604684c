//! What one call holds, as its holder sees it: one lock or several, which are lost together (rule P13).
//!
//! Invariants:
//! - Lost is absorbing: once [`Tenure::lost`] has answered a cause it always will.
//! - It is decided by the clock, at the call, on the caller's thread: the engine's word only comes on top (rule P28).

use std::sync::{Arc, OnceLock};

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
    deadline: Arc<Deadline>,
    clock: Arc<dyn Clock>,
    cause: OnceLock<LossCause>,
    wake: Arc<Notify>,
}

/// One lock that is held.
#[derive(Debug)]
pub(crate) struct OwnedLock {
    pub(crate) name: Name,
    pub(crate) key: Key,
    pub(crate) created: Revision,
    pub(crate) token: Token,
}

impl Tenure {
    pub(crate) fn new(
        first: OwnedLock,
        others: Vec<OwnedLock>,
        deadline: Arc<Deadline>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            first,
            others,
            deadline,
            clock,
            cause: OnceLock::new(),
            wake: Arc::new(Notify::new()),
        }
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
        if let Some(cause) = self.cause.get() {
            return Some(*cause);
        }
        if self.deadline.is_over(self.clock.now()) {
            self.lose(LossCause::Expired);
        }
        self.cause.get().copied()
    }

    /// It is lost; the first cause stands.
    pub(crate) fn lose(&self, cause: LossCause) {
        if self.cause.set(cause).is_ok() {
            self.wake.notify_waiters();
        }
    }

    /// Completes once it is lost; made before the state is looked at, so that no loss is missed.
    pub(crate) fn wakeup(&self) -> OwnedNotified {
        self.wake.clone().notified_owned()
    }

    /// Waits until it is lost.
    pub(crate) async fn until_lost(&self) -> LossCause {
        loop {
            let wakeup = self.wakeup();
            if let Some(cause) = self.lost() {
                return cause;
            }
            wakeup.await;
        }
    }
}
