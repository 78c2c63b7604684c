//! Shared state of one etcd's services: the store, the watches on it, and the clock.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use etcd_client::proto::PbCompactionRequest;

use crate::clock::Clock;
use crate::store::Store;
use crate::watches::Watches;

/// Number of revisions that compaction keeps.
const KEPT: i64 = 10_000;

/// Number of further revisions before the next compaction.
const SLACK: i64 = 1_000;

#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Addresses at which this etcd is served, for the list of members.
    addresses: Mutex<Vec<String>>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) watches: Watches,
    /// Revision up to which watches have received the events.
    notified: i64,
}

impl Shared {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        // Random like a real etcd's: an etcd that replaces another must not grant the same lease ids again.
        let any = RandomState::new().hash_one(0);
        let store = Store::with_first_lease(i64::try_from(any >> 2).unwrap_or(0).max(1));
        Self {
            state: Mutex::new(State {
                notified: store.revision(),
                store,
                watches: Watches::default(),
            }),
            clock,
            addresses: Mutex::default(),
        }
    }

    /// Expires due leases, then runs `act` at the current time. After that the watches receive the changes.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut State, Duration) -> T) -> T {
        let mut woken: Vec<Waker> = Vec::new();
        // After a panic in an earlier `act`, at worst one operation is missing. This call sends the events of the others.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        let expiry = state.store.next_expiry();
        state.store.expire(now);
        let done = act(&mut state, now);
        state.settle(expiry, &mut woken);
        drop(state);
        woken.into_iter().for_each(Waker::wake);
        done
    }

    pub(crate) fn addresses(&self) -> MutexGuard<'_, Vec<String>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Sends the changes to the watches; `expiry` is when the next lease expired before the action.
    fn settle(&mut self, expiry: Option<Duration>, woken: &mut Vec<Waker>) {
        let revision = self.store.revision();
        if revision > self.notified {
            self.watches.notify(&self.store, self.notified + 1, woken);
            if revision - self.store.compacted() >= KEPT + SLACK {
                let request = PbCompactionRequest { revision: revision - KEPT, physical: false };
                // Refused only if the store is already compacted that far.
                let _ = self.store.compact(&request);
            }
        } else if revision < self.notified {
            // Another store replaced the old one. To clients, etcd went down and came back.
            self.watches.end_all(woken);
        }
        self.notified = revision;
        let sooner = match (expiry, self.store.next_expiry()) {
            (Some(before), Some(now)) => now < before,
            (None, Some(_)) => true,
            _ => false,
        };
        if sooner {
            self.watches.wake_all(woken); // watch streams wait for the next expiry
        }
    }
}
