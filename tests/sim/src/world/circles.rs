//! Who really waits for whom, seen from above: over all processes and etcd, at one moment (rule P38).

use std::collections::BTreeSet;
use std::time::Duration;

use super::bench::Bench;
use super::clients::{Call, Stage};
use super::nemesis::lease_of;
use super::violation::must;
use crate::clock::Moment;
use crate::core::handovers::Run;
use crate::core::mode::{Mode, Seat};
use crate::core::place::name_of;
use crate::core::queue::{Queue, Slot, contends};
use crate::core::request::{Key, Kv, Response, Revision};
use crate::core::{CallId, Exchange, RequestId};

/// How long the edges of a call that has gone without notice may stand: an exchange in fair weather, and many in bad.
const FAIR: Duration = Duration::from_millis(50);
const BRISK: Duration = Duration::from_secs(2);
const STORMY: Duration = Duration::from_secs(15);

/// Whether somebody stands behind the key of readers, so that no other can join them.
type Shut<'a> = &'a dyn Fn(&Queue, &Run) -> bool;

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
            .any(|(key, n)| self.is_excused(n) || self.is_going(n, key));
        let call = abort.call;
        // A group may have lost its lease meanwhile, and waits anew: what is taken is nobody's, and nobody is told.
        let own = abort.circle.links.last().map(|link| &link.before);
        if self.calls[&call].outer().is_none()
            && own.is_some_and(|own| self.queue_of(&own.key, own.created).is_none())
        {
            return None;
        }
        let shut = |queue: &Queue, _: &Run| self.is_somebody_behind(queue);
        let stands = || self.reaches(self.ahead_of(call, &shut), &[call], &shut);
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
        let names = call.names.iter();
        // Who stood behind readers when it was looked may have gone since.
        let shut = |_: &Queue, run: &Run| run.is_contended();
        let ahead = names.flat_map(|name| self.here(id, call, name, &shut));
        must!(
            Truth,
            self.reaches(ahead.collect(), &held, &shut),
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

    /// Whether the process has sent this key off, and etcd has not told it yet: nobody waits by it any more, and no other can know.
    fn is_going(&self, n: usize, key: &Key) -> bool {
        let mut under_way = self.processes[n].core.under_way.values();
        under_way.any(|under_way| match &under_way.exchange {
            Exchange::Delete(deletions) => deletions.iter().any(|deletion| deletion.key == *key),
            _ => false,
        })
    }

    /// Whether a key that keeps readers out is at etcd now, and younger than this one of readers.
    fn is_somebody_behind(&self, queue: &Queue) -> bool {
        let excludes = |kv: &Kv| {
            contends(&queue.family, &kv.key) && Mode::Shared.is_excluded_by(Seat::of_key(&kv.key))
        };
        let created = queue.slot.created().unwrap_or(Revision::MAX);
        let mut kvs = self.store.kvs();
        kvs.any(|kv| kv.create_revision > created && excludes(kv))
    }

    /// Whether it waits, as far as its process can know.
    fn waits(&self, call: CallId) -> bool {
        let call = &self.calls[&call];
        matches!(call.stage, Stage::Waiting) || call.is_given_up()
    }

    /// The process a key belongs to.
    fn owner(&self, key: &str) -> Option<usize> {
        let lease = lease_of(key)?;
        self.owners.get(&lease).copied()
    }

    /// Whether who waits for these calls waits for one of `ends`.
    fn reaches(&self, from: Vec<CallId>, ends: &[CallId], shut: Shut<'_>) -> bool {
        let mut seen: BTreeSet<CallId> = from.iter().copied().collect();
        let mut next = from;
        while let Some(call) = next.pop() {
            if ends.contains(&call) {
                return true;
            }
            next.extend(
                self.ahead_of(call, shut)
                    .into_iter()
                    .filter(|of| seen.insert(*of)),
            );
        }
        false
    }

    /// Whom a call waits for: those ahead of it and the holder in its process, and whoever has an older key at etcd; if it
    /// has its locks, the call its body has made.
    fn ahead_of(&self, id: CallId, shut: Shut<'_>) -> Vec<CallId> {
        let call = &self.calls[&id];
        if self.waits(id) {
            let names = call.names.iter();
            return names
                .flat_map(|name| self.ahead_at(id, call, name, shut))
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

    /// All that its process has of a name.
    fn places<'a>(&'a self, process: usize, name: &'a str) -> impl Iterator<Item = &'a Queue> {
        let places = self.processes[process].core.queues.iter();
        places
            .filter(move |(place, _)| name_of(place) == name)
            .map(|(_, queue)| queue)
    }

    /// Those in its process that are ahead of it, or have what it cannot have with them.
    fn here(&self, id: CallId, call: &Call, name: &str, shut: Shut<'_>) -> Vec<CallId> {
        let mut here = Vec::new();
        let core = &self.processes[call.process].core;
        for queue in self.places(call.process, name) {
            here.extend(queue.calls.iter().take_while(|of| **of != id));
            // Where readers cannot join they wait for those who have the key: as somebody is behind it, or it takes no more.
            let closed = |queue: &Queue| match core.joined(queue) {
                Some((_, run)) => shut(queue, run) || call.names.len() > 1,
                None => true,
            };
            let readers = call.mode == Mode::Shared && queue.seat == Seat::Shared;
            if call.mode.is_excluded_by(queue.seat) || (readers && closed(queue)) {
                here.extend(queue.slot.holders());
            }
        }
        here
    }

    fn ahead_at(&self, id: CallId, call: &Call, name: &Key, shut: Shut<'_>) -> Vec<CallId> {
        let mut ahead = self.here(id, call, name, shut);
        let created = self
            .places(call.process, name)
            .find_map(|queue| match &queue.slot {
                Slot::Held { .. } => None,
                _ if !queue.is_in_line() => None,
                slot => slot.created().or_else(|| self.arrived(call.process, queue)),
            });
        // One that is still to come is behind all that are there.
        let created = created.unwrap_or(Revision::MAX);
        let own = |lease| self.owners.get(lease) == Some(&call.process);
        let family = format!("{name}/");
        let children = self.store.kvs().filter(|kv| {
            let older = kv.create_revision < created && !own(&kv.lease);
            older && contends(&family, &kv.key) && call.mode.is_excluded_by(Seat::of_key(&kv.key))
        });
        for kv in children {
            let key = String::from_utf8_lossy(&kv.key);
            let Some(queue) = self.queue_of(&key, kv.create_revision) else {
                continue;
            };
            let before = ahead.len();
            ahead.extend(queue.slot.holders());
            if ahead.len() == before {
                let process = self.owner(&key);
                let line = process.and_then(|n| self.places(n, name).next());
                ahead.extend(line.and_then(|queue| queue.calls.front()));
            }
        }
        ahead
    }

    /// The place that counts on a key: one that its process has given up is nobody's, and about to go.
    fn queue_of(&self, key: &str, created: Revision) -> Option<&Queue> {
        let process = &self.processes[self.owner(key)?];
        let (name, _) = key.rsplit_once('/')?;
        let lease = lease_of(key)?;
        let mut queues = process.core.queues.iter();
        let found = queues.find(|(place, queue)| {
            name_of(place) == name
                && queue.slot.created() == Some(created)
                && &*queue.own_key(lease) == key
        });
        found.map(|(_, queue)| queue)
    }

    /// The create revision of a key that is there although its process has not heard so.
    fn arrived(&self, process: usize, queue: &Queue) -> Option<Revision> {
        let core = &self.processes[process].core;
        let lease = core.leases.get(&queue.slot.lease()?)?.id;
        let key = queue.own_key(lease);
        Some(self.store.kv(key.as_bytes())?.create_revision)
    }
}
