//! What must hold at every step, and at the end.

use super::bench::Bench;
use super::clients::{Call, NAMES, Stage, incarnation, incarnations};
use super::store::Incarnation;
use crate::core::CallId;
use crate::core::bundle::own_key;
use crate::core::lease::State;
use crate::core::queue::{Queue, Queued, Slot};
use crate::core::request::Kv;

impl Bench {
    /// What must hold at every step.
    pub(crate) fn check(&mut self) {
        for (id, call) in &mut self.calls {
            if let Stage::Holding { grant, over, .. } = &mut call.stage {
                let was = std::mem::replace(over, grant.deadline.is_over(self.now));
                assert!(!was || *over, "the lock of call {id} comes back");
            }
        }
        for name in NAMES {
            let polled: Vec<_> = self
                .calls
                .iter()
                .filter(|(_, c)| self.may_be_polled(c, name))
                .collect();
            assert!(polled.len() < 2, "two bodies of {name} run: {polled:?}");
        }
        for process in self.processes.iter().filter(|p| !p.dead) {
            for queue in process.core.queues.values() {
                let usable = process
                    .core
                    .leases
                    .values()
                    .filter(|l| matches!(l.state, State::Open | State::Sealing));
                let keys = usable.map(|l| own_key(&queue.family, l.id));
                let live = keys
                    .filter(|key| self.store.keys.contains_key(key.as_bytes()))
                    .count();
                assert!(
                    live < 2,
                    "{live} keys of one process below {}",
                    queue.family
                );
            }
        }
    }

    /// Whether a body under this name may be polled now.
    fn may_be_polled(&self, call: &Call, name: &str) -> bool {
        match &call.stage {
            Stage::Holding {
                grant, lost: false, ..
            } => {
                let owned = call.names.iter().zip(&grant.owned);
                let mut owned = owned.filter(|(of, _)| &***of == name);
                !self.processes[call.process].dead
                    && !grant.deadline.is_over(self.now)
                    && owned.any(|(_, owned)| !self.tainted.contains(&incarnation(owned)))
            }
            _ => false,
        }
    }

    /// A process has removed keys: none that one of its bodies, or its own state, still counts on.
    pub(crate) fn check_removals(&mut self) {
        for (key, created) in std::mem::take(&mut self.store.removed) {
            for (id, call) in &self.calls {
                let Stage::Holding { grant, .. } = &call.stage else {
                    continue;
                };
                let same = incarnations(grant).contains(&(key.clone(), created));
                assert!(
                    !same || self.processes[call.process].dead,
                    "the key of call {id} goes before its body"
                );
            }
            let counted_on = self.counted_on(&(key, created));
            assert!(
                counted_on.is_none(),
                "a process deletes a key it counts on: {counted_on:?}"
            );
        }
    }

    /// The queue of a process that waits or holds by this incarnation.
    pub(crate) fn counted_on(&self, (key, created): &Incarnation) -> Option<&Queue> {
        let cores = self.processes.iter().filter(|p| !p.dead).map(|p| &p.core);
        let mut queues =
            cores.flat_map(|core| core.queues.values().map(move |queue| (core, queue)));
        let found = queues.find(|(core, queue)| {
            let (Slot::Held {
                lease, created: of, ..
            }
            | Slot::Queued(Queued {
                lease, created: of, ..
            })) = queue.slot
            else {
                return false;
            };
            let own = core
                .leases
                .get(&lease)
                .map(|l| own_key(&queue.family, l.id));
            of == *created && own.is_some_and(|own| own.as_bytes() == key)
        });
        found.map(|(_, queue)| queue)
    }

    /// Whether no call waits, holds or releases any more.
    pub(crate) fn unanswered(&self) -> Vec<(CallId, &Call, Vec<&Queue>)> {
        let there = |call: &Call| {
            !self.processes[call.process].dead && !self.processes[call.process].finished
        };
        let open = self
            .calls
            .iter()
            .filter(|(_, call)| !matches!(call.stage, Stage::Done) && there(call));
        open.map(|(id, call)| {
            let queues = &self.processes[call.process].core.queues;
            let queues = call.names.iter().filter_map(|name| queues.get(name));
            (*id, call, queues.collect())
        })
        .collect()
    }

    /// What a core holds on to once nobody wants anything: nothing.
    pub(crate) fn check_idle(&self) {
        for process in self.processes.iter().filter(|p| !p.dead && !p.finished) {
            let core = &process.core;
            assert!(core.queues.is_empty(), "left: {:?}", core.queues);
            assert!(
                core.calls.is_empty() && core.deletions.is_empty() && core.watches.is_empty(),
                "left: {core:?}"
            );
            assert!(
                core.timers.len() < 20 && core.under_way.len() < 4,
                "left: {:?} {:?}",
                core.timers,
                core.under_way
            );
        }
    }

    /// No key of ours is left, but session keys that an operator took over: those are in nobody's way.
    pub(crate) fn check_no_keys(&self) {
        let ours = |kv: &&Kv| {
            !kv.key.ends_with(b"/er")
                && (self.owners.contains_key(&kv.lease) || !kv.key.starts_with(b"locks%s/"))
        };
        let left: Vec<_> = self
            .store
            .keys
            .values()
            .filter(ours)
            .map(|kv| String::from_utf8_lossy(&kv.key))
            .collect();
        assert!(left.is_empty(), "left: {left:?}");
    }
}
