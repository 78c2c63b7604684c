//! What all services of one etcd share: the store, the watches on it, and the clock.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use etcd_client::proto::PbCompactionRequest;

use crate::clock::Clock;
use crate::store::Store;
use crate::watches::Watches;

/// How many revisions are kept.
const KEPT: i64 = 10_000;

/// How many more than that before the oldest go.
const SLACK: i64 = 1_000;

#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Where it is served, for those who ask for the members.
    pub(crate) addresses: Mutex<Vec<String>>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) watches: Watches,
    /// The revision up to which watches have been told.
    told: i64,
}

impl Shared {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        // Like a real one, and unlike the one that was here before it: an id of that one's leases must not be granted again.
        let any = RandomState::new().hash_one(0);
        let store = Store::with_first_lease(i64::try_from(any >> 2).unwrap_or(0).max(1));
        Self {
            state: Mutex::new(State {
                told: store.revision(),
                store,
                watches: Watches::default(),
            }),
            clock,
            addresses: Mutex::default(),
        }
    }

    /// Does something at the present time, after what is due by then, and tells the watches what came of it.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut State, Duration) -> T) -> T {
        let mut woken: Vec<Waker> = Vec::new();
        let mut state = self.lock();
        let now = self.clock.now();
        let before = state.mark();
        state.store.expire(now);
        let done = act(&mut state, now);
        state.settle(before, &mut woken);
        drop(state);
        woken.into_iter().for_each(Waker::wake);
        done
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic of the caller's own closure leaves at worst an operation undone; what was done is told by the next call.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How things stood before.
struct Mark {
    next_expiry: Option<Duration>,
}

impl State {
    fn mark(&self) -> Mark {
        Mark {
            next_expiry: self.store.next_expiry(),
        }
    }

    fn settle(&mut self, before: Mark, woken: &mut Vec<Waker>) {
        let revision = self.store.revision();
        if revision > self.told {
            self.watches.notify(&self.store, self.told + 1, woken);
            if revision - self.store.compacted() >= KEPT + SLACK {
                let request = PbCompactionRequest {
                    revision: revision - KEPT,
                    physical: false,
                };
                // Refused only if it is compacted that far already.
                let _ = self.store.compact(&request);
            }
        } else if revision < self.told {
            // The store was put in the place of another: to its clients, this is an etcd that went and came back.
            self.watches.end_all(woken);
        }
        self.told = revision;
        let sooner = match (before.next_expiry, self.store.next_expiry()) {
            (Some(before), Some(now)) => now < before,
            (None, Some(_)) => true,
            _ => false,
        };
        if sooner {
            self.watches.wake_all(woken); // they wait for leases to run out
        }
    }
}
