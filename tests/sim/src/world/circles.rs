//! Who really waits for whom, seen from above: over all processes and etcd, at one moment (rule P38).

use std::collections::BTreeSet;
use std::time::Duration;

use super::bench::Bench;
use super::clients::{Call, Stage};
use super::violation::must;
use crate::clock::Moment;
use crate::core::bundle::own_key;
use crate::core::queue::{Queue, Slot};
use crate::core::request::{Key, Response, Revision};
use crate::core::{CallId, Exchange, RequestId};

/// How long the edges of a call that has gone without notice may stand: an exchange in fair weather, and many in bad.
const FAIR: Duration = Duration::from_millis(50);
const BRISK: Duration = Duration::from_secs(2);
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
            .filter_map(|key| Some((key, self.owner(key)?)))
            .any(|(key, n)| self.is_excused(n) || self.goes_with_its_lease(n, key));
        let call = abort.call;
        // A group may have lost its lease meanwhile, and waits anew: what is taken is nobody's, and nobody is told.
        let own = abort.circle.links.last().map(|link| &link.before);
        if self.calls[&call].outer().is_none()
            && own.is_some_and(|own| self.queue_of(&own.key, own.created).is_none())
        {
            return None;
        }
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
            calls.chain(queue.slot.holder()).collect::<Vec<_>>()
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
            _ if self.peaceful && self.faults.slow > 0.0 => BRISK,
            Some(calm) if self.now - calm > STORMY => FAIR,
            None if self.peaceful => FAIR,
            _ => STORMY,
        };
        let recent = |at: &Moment| self.now - *at < long;
        !process.is_there()
            || process.asleep > self.now
            || self.unnoticed.get(&n).is_some_and(recent)
    }

    /// Whether the process has lost the lease of this key and sent it off: its call waits anew, and the old key stands for one
    /// exchange more.
    fn goes_with_its_lease(&self, n: usize, key: &Key) -> bool {
        let core = &self.processes[n].core;
        let alive = |lease| core.leases.get(lease).is_some_and(|l| l.is_alive());
        core.under_way.values().any(|under_way| {
            let Exchange::Delete(deletions) = &under_way.exchange else {
                return false;
            };
            let mut deletions = deletions.iter();
            deletions.any(|deletion| deletion.key == *key && !alive(&deletion.lease))
        })
    }

    /// Whether it waits, as far as its process can know.
    fn waits(&self, call: CallId) -> bool {
        let call = &self.calls[&call];
        matches!(call.stage, Stage::Waiting) || call.is_given_up()
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
        if self.waits(id) {
            let names = call.names.iter();
            return names
                .flat_map(|name| self.ahead_at(id, call, name))
                .collect();
        }
        match call.stage {
            Stage::Holding(_) => call
                .inner()
                .filter(|of| self.waits(*of))
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
        let mut ahead: Vec<CallId> = ahead.copied().chain(queue.slot.holder()).collect();
        let created = match &queue.slot {
            Slot::Held { .. } => return ahead,
            slot => slot.created().or_else(|| self.arrived(call.process, queue)),
        };
        // One that is still to come is behind all that are there.
        let created = created.unwrap_or(Revision::MAX);
        let own = |lease| self.owners.get(lease) == Some(&call.process);
        let family = queue.family.as_bytes();
        let children = self.store.kvs().filter(|kv| {
            let older = kv.create_revision < created && !own(&kv.lease);
            older && kv.key.starts_with(family) && queue.contends(&kv.key)
        });
        for kv in children {
            let key = String::from_utf8_lossy(&kv.key);
            let queue = self.queue_of(&key, kv.create_revision);
            ahead.extend(
                queue.and_then(|queue| queue.slot.holder().or(queue.calls.front().copied())),
            );
        }
        ahead
    }

    /// The queue that counts on a key: one that its process has given up is nobody's, and about to go.
    fn queue_of(&self, key: &str, created: Revision) -> Option<&Queue> {
        let process = &self.processes[self.owner(key)?];
        let queue = process.core.queues.get(key.rsplit_once('/')?.0)?;
        (queue.slot.created() == Some(created)).then_some(queue)
    }

    /// The create revision of a key that is there although its process has not heard so.
    fn arrived(&self, process: usize, queue: &Queue) -> Option<Revision> {
        let core = &self.processes[process].core;
        let lease = core.leases.get(&queue.slot.lease()?)?.id;
        let key = own_key(&queue.family, lease);
        Some(self.store.kv(key.as_bytes())?.create_revision)
    }
}
