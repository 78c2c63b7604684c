//! Kept locks: those of calls whose body has ended before the minimum time (rule P39).
//!
//! The engine releases them when that time is over. A shutdown moves their keys to leases that expire at that time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use etcd_locked_core::{
    CallId, Compare, Failure, Key, LeaseId, Op, Refusal, Request, Response, Revision, Txn,
};

use super::handle::whole_secs;
use super::ownership::OwnedLocks;
use crate::clock::{Clock, Moment};
use crate::transport::client::Client;
use crate::values::Name;

/// Maximum number of keys in one move, which is one transaction: etcd may check a permission for each key (rule P27).
const KEYS: usize = 32;
/// Maximum number of concurrent moves.
const MOVES: usize = 8;
/// Shortest lease that etcd grants, in seconds.
const SHORTEST: i64 = 2;
/// Pause before a failed move is tried again.
const PAUSE: Duration = Duration::from_millis(250);

/// Kept locks of an engine.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// The locks of each call, and when its time is over.
    calls: BTreeMap<CallId, (Moment, Arc<OwnedLocks>)>,
    /// Calls that are not being moved, the first to end first.
    due: BTreeSet<(Moment, CallId)>,
    /// Number of moves in progress; `None` before a shutdown.
    moves: Option<usize>,
}

impl Kept {
    pub(super) fn add(&mut self, call: CallId, until: Moment, locks: Arc<OwnedLocks>) {
        self.due.insert((until, call));
        self.calls.insert(call, (until, locks));
    }

    /// Returns when the next call must be released.
    pub(super) fn next(&self) -> Option<Moment> {
        self.due.first().map(|(until, _)| *until)
    }

    /// Removes and returns a call whose time is over.
    pub(super) fn take_due(&mut self, now: Moment) -> Option<CallId> {
        self.due.first().filter(|(until, _)| *until <= now)?;
        let (_, call) = self.due.pop_first()?;
        self.calls.remove(&call).map(|_| call)
    }

    /// Removes a call that has lost its locks; true if they must be released. A call that is being moved stays, because the core
    /// considers the moved key lost, and a release would delete it.
    pub(super) fn lose(&mut self, call: CallId) -> bool {
        let Some((until, _)) = self.calls.get(&call) else { return false };
        let lost = self.due.remove(&(*until, call));
        lost && self.calls.remove(&call).is_some()
    }

    /// Begins a shutdown: all keys are moved.
    pub(super) fn shut_down(&mut self) {
        self.moves.get_or_insert_default();
    }

    /// Returns the next move that a shutdown needs, unless enough are in progress: calls with the same remaining time, in whole seconds.
    pub(super) fn next_move(&mut self, now: Moment) -> Option<Move> {
        let moves = self.moves.as_mut().filter(|moves| **moves < MOVES)?;
        let secs = |until: Moment| whole_secs(until - now).max(SHORTEST);
        let ttl_secs = secs(self.due.first()?.0);
        let mut next = Move { ttl_secs, ..Move::default() };
        while let Some((until, call)) = self.due.first().copied()
            && secs(until) == ttl_secs
        {
            let kept = self.calls.get(&call).into_iter();
            let keys = kept.flat_map(|(_, it)| it.locks().map(|it| (it.key.clone(), it.created)));
            let keys: Vec<_> = keys.collect();
            if !next.keys.is_empty() && next.keys.len() + keys.len() > KEYS {
                break;
            }
            self.due.pop_first();
            next.calls.push(call);
            next.keys.extend(keys);
        }
        *moves += 1;
        Some(next)
    }

    /// Removes the calls of a complete move.
    pub(super) fn moved(&mut self, calls: &[CallId]) {
        calls.iter().for_each(|call| drop(self.calls.remove(call)));
        self.moves = self.moves.map(|moves| moves - 1);
    }

    pub(super) fn locks(&self, call: CallId) -> Option<&Arc<OwnedLocks>> {
        self.calls.get(&call).map(|(_, locks)| locks)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &Name> {
        let locks = self.calls.values().flat_map(|(_, locks)| locks.locks());
        locks.map(|lock| &lock.name)
    }
}

/// Keys to put under a separate lease.
#[derive(Debug, Default)]
pub(super) struct Move {
    calls: Vec<CallId>,
    /// Keys that may still exist, each with its create revision.
    keys: Vec<(Key, Revision)>,
    ttl_secs: i64,
    lease: Option<LeaseId>,
}

impl Move {
    /// Tries until each key is under the new lease, or gone. Returns the calls.
    pub(super) async fn complete(mut self, client: &Arc<Client>, clock: &dyn Clock) -> Vec<CallId> {
        loop {
            match self.attempt(client).await {
                Ok(true) => return self.calls,
                Err(Failure::Refused(Refusal::LeaseNotFound, _)) => self.lease = None,
                Ok(false) | Err(_) => {}
            }
            clock.sleep_until(clock.now() + PAUSE).await;
        }
    }

    /// Returns false if a key changed between the read and the write.
    async fn attempt(&mut self, client: &Arc<Client>) -> Result<bool, Failure> {
        let lease = match self.lease {
            Some(lease) => lease,
            None => match client.exchange(Request::Grant(self.ttl_secs)).await? {
                Response::Granted { lease, .. } => lease,
                _ => return Ok(false),
            },
        };
        client.renewals.forget(lease); // it must expire, so it is not renewed
        self.lease = Some(lease);
        let get = |(key, _): &(Key, Revision)| Op::Get { key: key.clone(), values: true };
        let read = Txn { then: self.keys.iter().map(get).collect(), ..Txn::default() };
        let mut found = client.exchange(Request::Txn(read)).await?.txn()?.firsts();
        let mut puts = Txn::default();
        self.keys.retain(|(key, created)| {
            let found = found.next().flatten();
            let Some(kv) = found.filter(|kv| kv.create_revision == *created) else { return false };
            puts.when.push(Compare::Created(key.clone(), *created));
            puts.then.push(Op::Put { key: key.clone(), value: kv.value.into(), lease });
            true
        });
        if self.keys.is_empty() {
            client.exchange(Request::Revoke(lease)).await?; // unused
            return Ok(true);
        }
        Ok(client.exchange(Request::Txn(puts)).await?.txn()?.succeeded)
    }
}
