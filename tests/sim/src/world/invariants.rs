//! Invariants: what must hold at every step, and at the end of a schedule.

use std::collections::BTreeMap;
use std::time::Duration;

use super::bench::Bench;
use super::clients::{Body, Call, Stage, incarnation};
use super::etcd::Incarnation;
use super::nemesis::lease_of;
use super::view::{self, Contender, ContenderState};
use super::violation::must;
use crate::world::CallId;
use etcd_locked_core::{Compare, Key, Kv, LossCause, Mode, Op, Request, Seat};

/// How long nothing may move once faults have ended: twice the longest TTL and five seconds.
const STUCK: Duration = Duration::from_secs(2 * 5 + 5);

impl Bench {
    /// Checks what must hold at every step.
    pub(crate) fn check(&mut self) {
        let mut running: Vec<(&Key, CallId, Mode, etcd_locked_core::Revision)> = Vec::new();
        for id in &self.holding {
            let call = self.calls.get_mut(id).expect("a call");
            let Stage::Holding(body) = &mut call.stage else {
                continue;
            };
            let was = body.over;
            let clock = self.processes[call.process].clock;
            body.over = body.grant.deadline.is_over(clock.shown(self.now));
            must!(I2, !was || body.over, "the lock of call {id} revives");
            match body.grant.deadline.stop() {
                Some(stop) => body.stop = clock.when(stop),
                None if !was => body.early = self.now < body.stop,
                None => {}
            }
        }
        for (id, call, body) in self.bodies().filter(|(_, call, body)| self.runs(call, body)) {
            for (name, owned) in call.names.iter().zip(&body.grant.owned) {
                let it = incarnation(owned);
                if self.tainted.contains(&it) {
                    continue;
                }
                must!(I1, self.store.has(&it), "the body of call {id} runs, and {owned:?} is gone");
                let mut others = running.iter().filter(|(of, ..)| *of == name);
                let together = |mode: Mode| {
                    mode != Mode::Exclusive
                        && std::mem::discriminant(&mode) == std::mem::discriminant(&call.mode)
                };
                let other = others.find(|(.., mode, _)| !together(*mode));
                let (none, mode) = (other.is_none(), call.mode);
                must!(I1, none, "two bodies of {name} run: {id}, which is {mode:?}, and {other:?}");
                running.push((name, id, call.mode, owned.created));
            }
        }
        // A permit counts only older keys. Calls with a larger number may come later.
        for (name, id, mode, created) in &running {
            let is_older = |(of, other, _, at): &&_| of == name && other != id && at < created;
            let older: Vec<_> = running.iter().filter(is_older).collect();
            let fits = mode.room().is_none_or(|room| older.len() <= room);
            must!(I1, fits, "more than {mode:?} of {name} run: {id} and {older:?}");
        }
        self.check_keys();
        self.check_progress();
    }

    fn bodies(&self) -> impl Iterator<Item = (CallId, &Call, &Body)> {
        self.holding.iter().filter_map(|id| match &self.calls[id] {
            call @ Call { stage: Stage::Holding(body), .. } => Some((*id, call, body)),
            _ => None,
        })
    }

    /// Returns true if a body is polled, or a poll that began in time is within the margin before expiry.
    fn runs(&self, call: &Call, body: &Body) -> bool {
        if self.processes[call.process].dead || body.early {
            return false;
        }
        let polled = matches!(body.lost, None | Some(LossCause::Expired | LossCause::Shutdown));
        let ttl = Duration::from_secs(call.ttl_secs.unsigned_abs());
        let margin = (ttl / 10).max(Duration::from_millis(300));
        polled && self.now < body.stop + margin
    }

    /// Checks that a process has one live key at most for a name and seat, and one that waits, plus one for each nested call.
    fn check_keys(&self) {
        for process in self.processes.iter().filter(|p| p.is_there()) {
            let leases = view::leases(&process.core);
            let mut live: BTreeMap<(&[u8], Seat), usize> = BTreeMap::new();
            for kv in self.store.kvs().filter(|kv| !kv.key.starts_with(b"locks%s/")) {
                let lease = std::str::from_utf8(&kv.key).ok().and_then(lease_of);
                let name = kv.key.iter().rposition(|byte| *byte == b'/').map(|at| &kv.key[..at]);
                if let Some(name) = name.filter(|_| lease.is_some_and(|it| leases.contains(&it))) {
                    *live.entry((name, Seat::of_key(&kv.key))).or_default() += 1;
                }
            }
            let twice = live.iter().find(|(_, live)| **live > 1);
            must!(I6, twice.is_none(), "two keys of one process: {twice:?}");
            let mut queued: Vec<(Key, Option<u64>)> = Vec::new();
            for contender in view::contenders(&process.core) {
                if contender.is_queued() {
                    // One contender in line, and one for each nested call.
                    let nested = matches!(contender.seat, Seat::Nested { .. });
                    queued.push((contender.name, contender.call.filter(|_| nested)));
                }
            }
            queued.sort();
            let twice = queued.windows(2).find(|two| two[0] == two[1]);
            must!(I6, twice.is_none(), "two keys of one process wait: {twice:?}");
        }
    }

    /// Checks that without faults, something moves as long as a call waits and no body works.
    fn check_progress(&self) {
        let Some(calm) = self.calm else { return };
        let since = self.progress.max(calm);
        if self.now - since <= STUCK {
            return;
        }
        let there = |call: &&Call| self.processes[call.process].is_there();
        let mut calls = self.calls.values().filter(there);
        let works = calls.clone().any(|it| matches!(it.stage, Stage::Holding(_)) && !it.due);
        let waits = calls.find(|call| matches!(call.stage, Stage::Waiting));
        must!(Progress, works || waits.is_none(), "nothing moves, and one waits: {waits:?}");
    }

    /// Checks a request: no two acquisitions of a name in a transaction, one key for each name, lease and seat.
    pub(crate) fn check_request(&mut self, request: &Request) {
        let Request::Txn(txn) = request else { return };
        let mut names: Vec<&str> = Vec::new();
        for op in &txn.then {
            let Op::Put { key, lease, .. } = op else {
                continue;
            };
            let Some((name, _)) = key.rsplit_once('/') else {
                continue;
            };
            if name.starts_with("locks%s") {
                continue; // a session key
            }
            // An existing key may be written again together with others of its name, because that acquires nothing.
            let again = |of: &Compare| matches!(of, Compare::Modified(of, _) if of == key);
            if !txn.when.iter().any(again) {
                must!(I6, !names.contains(&name), "two acquisitions of {name} in a transaction");
                names.push(name);
            }
            let of = (name.as_bytes().to_vec(), *lease, Seat::of_key(key.as_bytes()));
            let known = self.keys.entry(of).or_insert_with(|| key.clone());
            must!(I7, known == key, "{known} and {key} are of one name, lease and seat");
        }
    }

    /// Checks the keys that processes have removed: no body or core may still count on them.
    pub(crate) fn check_removals(&mut self) {
        for removed in std::mem::take(&mut self.store.removed) {
            for (id, call, body) in self.bodies() {
                let its = body.grant.owned.iter().any(|o| incarnation(o) == removed);
                let goes = its && !self.processes[call.process].dead;
                must!(I11, !goes, "a key is deleted before body {id}: {:?}", body.grant);
            }
            let counted_on = self.counted_on(&removed);
            must!(I5, counted_on.is_none(), "a process deletes a key it counts on: {counted_on:?}");
        }
    }

    /// Returns the contender that waits by this incarnation, or is held by it.
    pub(crate) fn counted_on(&self, (key, created): &Incarnation) -> Option<Contender> {
        let cores = self.processes.iter().filter(|p| !p.dead).map(|p| &p.core);
        cores.flat_map(view::contenders).find(|contender| {
            let counts = matches!(contender.state, ContenderState::Owned | ContenderState::Waiting);
            let own = contender.key.as_ref().is_some_and(|own| own.as_bytes() == key);
            counts && own && !contender.aborts && contender.created == Some(*created)
        })
    }

    /// Returns the calls that wait, hold or release in live processes, and those not yet made, except those that a body makes.
    pub(crate) fn unanswered(&self) -> impl Iterator<Item = (CallId, &Call)> {
        let open = |call: &Call| match call.stage {
            Stage::Done => false,
            Stage::Idle => call.outer.is_none(),
            _ => self.processes[call.process].is_there(),
        };
        let calls = self.calls.iter().map(|(id, call)| (*id, call));
        calls.filter(move |(_, call)| open(call))
    }

    /// Checks that a core without calls keeps nothing, and leaves nothing at etcd.
    pub(crate) fn check_idle(&self) {
        for (n, process) in self.processes.iter().enumerate() {
            if !process.is_there() {
                continue;
            }
            if let Err(left) = view::is_idle(&process.core) {
                must!(I4, false, "left in p{n}: {left}");
            }
        }
        self.check_no_keys();
    }

    /// Returns the process of the lease to which a key is attached.
    pub(crate) fn process_of(&self, kv: &Kv) -> Option<usize> {
        self.owners.get(&kv.lease?).copied()
    }

    /// Checks that no key is left below a name, nor a session key of a process that is gone, unless an operator took it over.
    pub(crate) fn check_no_keys(&self) {
        let session = |kv: &Kv| kv.key.starts_with(b"locks%s/");
        let there = |kv: &Kv| {
            let owner = self.process_of(kv);
            owner.is_some_and(|n| self.processes[n].is_there())
        };
        let left = |kv: &&Kv| {
            !kv.key.ends_with(b"/er")
                && !(session(kv) && (there(kv) || self.process_of(kv).is_none()))
        };
        let left: Vec<_> =
            self.store.kvs().filter(left).map(|kv| String::from_utf8_lossy(&kv.key)).collect();
        must!(I4, left.is_empty(), "left at etcd: {left:?}");
    }
}
