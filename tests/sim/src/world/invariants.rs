//! What must hold at every step, and at the end.

use std::time::Duration;

use super::bench::Bench;
use super::clients::{Body, Call, Stage, incarnation};
use super::etcd::{Incarnation, key_of};
use super::view::{self, Contender, ContenderState};
use super::violation::must;
use crate::world::CallId;
use etcd_locked_core::{Compare, Key, Kv, LossCause, Mode, Op, Request, Seat};

/// How long nothing may move once the faults are over: twice the longest TTL and five seconds.
const STUCK: Duration = Duration::from_secs(2 * 5 + 5);

impl Bench {
    /// What must hold at every step.
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
            must!(I2, !was || body.over, "the lock of call {id} comes back");
            match body.grant.deadline.stop() {
                Some(stop) => body.stop = clock.when(stop),
                None if !was => body.early = self.now < body.stop,
                None => {}
            }
        }
        for id in &self.holding {
            let call = &self.calls[id];
            let Stage::Holding(body) = &call.stage else {
                continue;
            };
            if !self.runs(call, body) {
                continue;
            }
            for (name, owned) in call.names.iter().zip(&body.grant.owned) {
                let (key, created) = incarnation(owned);
                if self.tainted.contains(&(key.clone(), created)) {
                    continue;
                }
                let there = self.store.kv(&key).map(|kv| kv.create_revision);
                must!(
                    I1,
                    there == Some(created),
                    "the body of call {id} runs, and {} of {created} is gone",
                    owned.key
                );
                let others = || running.iter().filter(|(of, ..)| *of == name);
                let together = |mode: Mode| {
                    mode != Mode::Exclusive
                        && std::mem::discriminant(&mode) == std::mem::discriminant(&call.mode)
                };
                let other = others().find(|(.., mode, _)| !together(*mode));
                must!(
                    I1,
                    other.is_none(),
                    "two bodies of {name} run: {id}, which is {:?}, and {other:?}",
                    call.mode
                );
                running.push((name, *id, call.mode, created));
            }
        }
        // A permit counts the keys that are older: those of calls with another number may come later.
        for (name, id, mode, created) in &running {
            let older = running
                .iter()
                .filter(|(of, other, _, at)| of == name && other != id && at < created);
            must!(
                I1,
                mode.room().is_none_or(|room| older.clone().count() <= room),
                "more than {mode:?} of {name} run: {id} and {:?}",
                older.collect::<Vec<_>>()
            );
        }
        self.check_retained();
        self.check_keys();
        self.check_progress();
    }

    /// Whether a body is polled, or a poll that began in time has not outlasted the margin before expiry.
    fn runs(&self, call: &Call, body: &Body) -> bool {
        if self.processes[call.process].dead || body.early || body.stopped {
            return false;
        }
        let polled = matches!(body.lost, None | Some(LossCause::Expired | LossCause::Shutdown));
        let ttl = Duration::from_secs(call.ttl_secs.unsigned_abs());
        let margin = (ttl / 10).max(Duration::from_millis(300));
        polled && self.now < body.stop + margin
    }

    /// A process has at most one live key for a name and seat, and at most one that waits for a name.
    fn check_keys(&self) {
        for process in self.processes.iter().filter(|p| p.is_there()) {
            let leases = view::leases(&process.core);
            let mut queued: Vec<Key> = Vec::new();
            for contender in view::contenders(&process.core) {
                let Contender { name, seat, .. } = &contender;
                let live = leases
                    .iter()
                    .map(|lease| key_of(name, *lease, *seat))
                    .filter(|key| self.store.kv(key.as_bytes()).is_some())
                    .count();
                must!(I6, live < 2, "{live} keys of one process: {contender:?}");
                if contender.is_queued() {
                    queued.push(contender.name);
                }
            }
            let waiting = queued.len();
            queued.dedup();
            must!(
                I6,
                waiting == queued.len(),
                "two keys of one process wait below one of {queued:?}"
            );
        }
    }

    /// Once there are no faults, something moves as long as a call waits and no body works.
    fn check_progress(&self) {
        let Some(calm) = self.calm else { return };
        let since = self.progress.max(calm);
        if self.now - since <= STUCK {
            return;
        }
        let there = |call: &Call| self.processes[call.process].is_there();
        let works = self
            .calls
            .values()
            .any(|call| matches!(call.stage, Stage::Holding(_)) && there(call) && !call.due);
        let waits =
            self.calls.iter().find(|(_, call)| matches!(call.stage, Stage::Waiting) && there(call));
        if let Some((id, call)) = waits
            && !works
        {
            must!(Progress, false, "call {id} for {:?} waits, and nothing moves", call.names);
        }
    }

    /// What is asked of etcd: never two acquisitions of a name in a transaction, one key for each name, lease and seat.
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
                continue; // a session key, or an edge
            }
            // A key that is there may be written again together with others of its name: that acquires nothing.
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

    /// A process has removed keys: none that a body or core of any process still counts on.
    pub(crate) fn check_removals(&mut self) {
        for removed in std::mem::take(&mut self.store.removed) {
            for id in &self.holding {
                let call = &self.calls[id];
                let Stage::Holding(body) = &call.stage else {
                    continue;
                };
                let its = body.grant.owned.iter().any(|o| incarnation(o) == removed);
                let (key, created) = &removed;
                let key = String::from_utf8_lossy(key);
                must!(
                    I11,
                    !its || self.processes[call.process].dead,
                    "{key} of {created} goes before the body of call {id}"
                );
            }
            let counted_on = self.counted_on(&removed);
            must!(I5, counted_on.is_none(), "a process deletes a key it counts on: {counted_on:?}");
        }
    }

    /// The contender that waits, or is owned, by this incarnation.
    pub(crate) fn counted_on(&self, (key, created): &Incarnation) -> Option<Contender> {
        let cores = self.processes.iter().filter(|p| !p.dead).map(|p| &p.core);
        cores.flat_map(view::contenders).find(|contender| {
            let counts = matches!(contender.state, ContenderState::Owned | ContenderState::Waiting);
            let own = contender.key.as_ref().is_some_and(|own| own.as_bytes() == key);
            counts && own && contender.created == Some(*created)
        })
    }

    /// The calls that wait, hold or release, of processes that are there, and those not yet made, unless a body makes them.
    pub(crate) fn unanswered(&self) -> impl Iterator<Item = (CallId, &Call)> {
        let open = |call: &Call| match call.stage {
            Stage::Done => false,
            Stage::Idle => call.outer.is_none(),
            _ => self.processes[call.process].is_there(),
        };
        let calls = self.calls.iter().map(|(id, call)| (*id, call));
        calls.filter(move |(_, call)| open(call))
    }

    /// A core without calls holds on to nothing, and leaves nothing at etcd.
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

    /// The process whose lease a key is attached to.
    pub(crate) fn process_of(&self, kv: &Kv) -> Option<usize> {
        self.owners.get(&kv.lease?).copied()
    }

    /// No key of ours is left below a name, nor a session key of a process that is gone; but session keys that an
    /// operator took over may stay.
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
