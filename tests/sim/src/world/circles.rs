//! Who really waits for whom, seen from above: over all processes and etcd, at one moment (rule P38).

use std::collections::BTreeSet;
use std::time::Duration;

use super::bench::Bench;
use super::clients::{Call, Stage};
use super::violation::must;
use crate::clock::Moment;
use crate::core::queue::{Queue, Queued, Slot};
use crate::core::request::{Key, Response};
use crate::core::{CallId, Exchange, RequestId};

/// How long the edges of a call that has gone without notice may stand: an exchange in fair weather, and many in bad.
const FAIR: Duration = Duration::from_millis(50);
const STORMY: Duration = Duration::from_secs(15);

impl Bench {
    /// A call of this process goes without waiting until nobody follows its edges any more.
    pub(crate) fn goes_unnoticed(&mut self, process: usize) {
        self.unnoticed.insert(process, self.now);
    }

    /// A request that is to take a call out of a circle has reached etcd: the call, and whether it is in one.
    pub(crate) fn stands(&self, from: usize, id: RequestId) -> Option<(CallId, bool)> {
        let exchange = self.processes[from].core.under_way.get(&id);
        let Some(Exchange::Abort(abort)) = exchange.map(|under_way| &under_way.exchange) else {
            return None;
        };
        let links = abort.circle.links.iter();
        let keys = links.flat_map(|link| [&link.waiting.0, &link.before.key]);
        let excused = keys
            .filter_map(|key| self.owner(key))
            .any(|n| self.is_excused(n));
        let call = abort.call;
        let stands = || self.reaches(self.ahead_of(call), &[call]);
        self.waits(call).then(|| (call, excused || stands()))
    }

    /// etcd has carried it out.
    pub(crate) fn check_abort(&mut self, call: CallId, stood: bool, answer: &Response) {
        if let Response::Txn(answer) = answer
            && answer.succeeded
        {
            self.cut.insert(call);
            must!(
                Truth,
                stood,
                "call {call} is taken out of a circle that is none"
            );
        }
    }

    /// A core has refused a call because of a circle: one that etcd has confirmed, or one inside the process.
    pub(crate) fn check_deadlock(&mut self, id: CallId) {
        self.deadlocks += 1;
        if self.cut.remove(&id) {
            return;
        }
        let call = &self.calls[&id];
        let held = self.chain(call.outer());
        let queues = &self.processes[call.process].core.queues;
        let queues = call.names.iter().filter_map(|name| queues.get(name));
        let ahead = queues.flat_map(|queue| {
            let calls = queue.calls.iter().copied();
            calls.chain(holder(queue)).collect::<Vec<_>>()
        });
        must!(
            Truth,
            self.reaches(ahead.collect(), &held),
            "call {id} is refused because of a circle that is none"
        );
    }

    /// Whether what the process has written may not be so, and it could not help it.
    fn is_excused(&self, n: usize) -> bool {
        let process = &self.processes[n];
        let long = match self.calm {
            Some(calm) if self.now - calm > STORMY => FAIR,
            None if self.peaceful && self.faults.slow == 0.0 => FAIR,
            _ => STORMY,
        };
        let recent = |at: &Moment| self.now - *at < long;
        !process.is_there()
            || process.asleep > self.now
            || self.unnoticed.get(&n).is_some_and(recent)
    }

    fn waits(&self, call: CallId) -> bool {
        matches!(self.calls[&call].stage, Stage::Waiting)
    }

    /// The process a key belongs to.
    fn owner(&self, key: &str) -> Option<usize> {
        let (_, lease) = key.rsplit_once('/')?;
        let lease = i64::from_str_radix(lease, 16).ok()?;
        self.owners.get(&lease).copied()
    }

    /// Whether who waits for these calls waits for one of `ends`.
    fn reaches(&self, from: Vec<CallId>, ends: &[CallId]) -> bool {
        let mut seen: BTreeSet<CallId> = from.iter().copied().collect();
        let mut next = from;
        while let Some(call) = next.pop() {
            if ends.contains(&call) {
                return true;
            }
            next.extend(
                self.ahead_of(call)
                    .into_iter()
                    .filter(|of| seen.insert(*of)),
            );
        }
        false
    }

    /// Whom a call waits for: those ahead of it and the holder in its process, and whoever has an older key at etcd; if it
    /// has its locks, the call its body has made.
    fn ahead_of(&self, id: CallId) -> Vec<CallId> {
        let call = &self.calls[&id];
        match call.stage {
            Stage::Waiting => call
                .names
                .iter()
                .flat_map(|name| self.ahead_at(id, call, name))
                .collect(),
            Stage::Holding(_) => call
                .inner()
                .filter(|inner| self.waits(*inner))
                .into_iter()
                .collect(),
            _ => Vec::new(),
        }
    }

    fn ahead_at(&self, id: CallId, call: &Call, name: &Key) -> Vec<CallId> {
        let Some(queue) = self.processes[call.process].core.queues.get(name) else {
            return Vec::new();
        };
        let ahead = queue.calls.iter().take_while(|of| **of != id);
        let mut ahead: Vec<CallId> = ahead.copied().chain(holder(queue)).collect();
        let (Slot::Queued(Queued { created, .. }) | Slot::Deleting { created, .. }) = queue.slot
        else {
            return ahead;
        };
        let family = queue.family.as_bytes();
        let children = self.store.kvs().filter(|kv| {
            kv.create_revision < created && kv.key.starts_with(family) && queue.contends(&kv.key)
        });
        for kv in children {
            let owner = self.owners.get(&kv.lease).map(|n| &self.processes[*n]);
            let queue = owner.and_then(|process| process.core.queues.get(name));
            ahead.extend(queue.and_then(|queue| holder(queue).or(queue.calls.front().copied())));
        }
        ahead
    }
}

/// The call that has the lock.
fn holder(queue: &Queue) -> Option<CallId> {
    match queue.slot {
        Slot::Held { call, .. } => Some(call),
        _ => None,
    }
}
