//! Real cycles: which calls wait for which, over all processes and etcd, at one moment (rule P38).

use std::collections::BTreeSet;

use super::bench::Bench;
use super::clients::{Call, Stage};
use super::nemesis::lease_of;
use super::tally::Happened;
use super::view::{self, Contender, ContenderState};
use super::violation::must;
use crate::world::{CallId, Revision, revision};
use etcd_locked_core::{Key, RequestId, Response, Seat};

impl Bench {
    /// Returns the call that an abort, now at etcd, would refuse, and whether it really is in a cycle.
    pub(crate) fn stands(&self, from: usize, id: RequestId) -> Option<(CallId, bool)> {
        let (call, keys) = view::abort(&self.processes[from].core, id)?;
        let mut keys = keys.iter().filter_map(|key| Some((key, self.owner(key)?)));
        let excused = keys.any(|(key, n)| self.is_excused(n) || self.is_going(n, key));
        let stands = || self.reaches(self.ahead_of(call), &[call]);
        self.waits(call).then(|| (call, excused || stands()))
    }

    /// Checks an abort that etcd has carried out.
    pub(crate) fn check_abort(&mut self, call: CallId, stood: bool, answer: &Response) {
        if let Response::Txn(answer) = answer
            && answer.succeeded
        {
            self.cut.insert(call);
            must!(Truth, stood, "call {call} aborts, but is in no cycle");
        }
    }

    /// Checks the refusal of a call for a cycle: one that etcd has confirmed, or one inside the process.
    pub(crate) fn check_deadlock(&mut self, id: CallId) {
        self.tally.count(Happened::Deadlock);
        if self.cut.remove(&id) {
            return;
        }
        let call = &self.calls[&id];
        let held = self.chain(call.outer);
        let ahead = call.names.iter().flat_map(|name| self.here(id, call, name)).collect();
        must!(Truth, !held.is_empty(), "call {id} is refused for a cycle, but holds nothing");
        must!(Truth, self.reaches(ahead, &held), "call {id} is refused outside any cycle");
    }

    /// Returns true if the process is gone, or receives nothing, so that its keys remain for a while.
    fn is_excused(&self, n: usize) -> bool {
        let process = &self.processes[n];
        !process.is_there() || process.asleep > self.now
    }

    /// Returns true if the process has given up this key, and its delete or its put has no response: no call waits by it any
    /// more, which no other process can know.
    fn is_going(&self, n: usize, key: &Key) -> bool {
        let core = &self.processes[n].core;
        let is_wanted = |of: &Contender| match of.call {
            Some(call) => self.waits(call),
            None => !view::waiters(core, &of.name).is_empty(),
        };
        let given_up = |of: &Contender| match of.state {
            ContenderState::Deleting => true,
            ContenderState::Pending => of.detached || !is_wanted(of),
            ContenderState::Waiting | ContenderState::Owned => of.detached,
        };
        let mut contenders = view::contenders(core).into_iter().filter(given_up);
        contenders.any(|of| of.key.as_ref() == Some(key))
    }

    /// Returns true if it waits, as far as its process can know.
    fn waits(&self, call: CallId) -> bool {
        let call = &self.calls[&call];
        matches!(call.stage, Stage::Waiting) || call.given_up
    }

    /// Returns the process of a key.
    pub(super) fn owner(&self, key: &str) -> Option<usize> {
        let lease = lease_of(key)?;
        self.owners.get(&lease).copied()
    }

    /// Returns true if a call that waits for these calls waits for one of `ends`.
    fn reaches(&self, mut next: Vec<CallId>, ends: &[CallId]) -> bool {
        let mut seen: BTreeSet<CallId> = next.iter().copied().collect();
        while let Some(call) = next.pop() {
            if ends.contains(&call) {
                return true;
            }
            next.extend(self.ahead_of(call).into_iter().filter(|of| seen.insert(*of)));
        }
        false
    }

    /// Returns the calls for which a call waits: in its process those ahead of it and the holders, at etcd those with an older
    /// key. If it has its locks: the call that its body has made.
    fn ahead_of(&self, id: CallId) -> Vec<CallId> {
        let call = &self.calls[&id];
        if self.waits(id) {
            let names = call.names.iter();
            return names.flat_map(|name| self.ahead_at(id, call, name)).collect();
        }
        match call.stage {
            Stage::Holding(_) => call.inner.filter(|of| self.waits(*of)).into_iter().collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the calls of its process that are ahead of it, or hold what it cannot hold beside them.
    fn here(&self, id: CallId, call: &Call, name: &str) -> Vec<CallId> {
        let core = &self.processes[call.process].core;
        let waiters = view::waiters(core, name).into_iter();
        let mut here: Vec<CallId> = waiters.take_while(|of| *of != id).collect();
        for contender in view::contenders_of(core, name) {
            if call.mode.is_excluded_by(contender.seat) {
                here.extend(contender.holders);
            }
        }
        here
    }

    fn ahead_at(&self, id: CallId, call: &Call, name: &Key) -> Vec<CallId> {
        let mut ahead = self.here(id, call, name);
        let core = &self.processes[call.process].core;
        let own = view::contenders_of(core, name).into_iter().filter(Contender::is_queued);
        let own = own.filter(|of| of.call.is_none_or(|call| call == id));
        let own = own.max_by_key(|of| of.call);
        let created = own.and_then(|of| of.created.or_else(|| self.arrived(&of)));
        // A key that is still to be put will be behind all existing ones.
        let created = created.unwrap_or(revision(Revision::MAX));
        let children = self.store.below(name).filter(|kv| {
            let older = kv.create_revision < created && self.process_of(kv) != Some(call.process);
            older && call.mode.is_excluded_by(Seat::of_key(&kv.key))
        });
        for kv in children {
            let key = String::from_utf8_lossy(&kv.key);
            let Some(contender) = self.contender_of(&key, kv.create_revision) else {
                continue;
            };
            match (&contender.state, self.owner(&key)) {
                (ContenderState::Owned, _) => ahead.extend(contender.holders),
                _ if contender.call.is_some() => ahead.extend(contender.call),
                (_, Some(n)) => {
                    let waiters = view::waiters(&self.processes[n].core, name);
                    ahead.extend(waiters.first());
                }
                (_, None) => {}
            }
        }
        ahead
    }

    /// Returns the contender of a key. A key that its process has given up is about to go, and has none.
    fn contender_of(&self, key: &str, created: etcd_locked_core::Revision) -> Option<Contender> {
        let process = &self.processes[self.owner(key)?];
        let (name, _) = key.rsplit_once('/')?;
        let seat = Seat::of_key(key.as_bytes());
        let is_it = |of: &Contender| {
            let there = of.created.or_else(|| self.arrived(of));
            !of.detached && there == Some(created) && of.seat == seat
        };
        view::contenders_of(&process.core, name).into_iter().find(is_it)
    }

    /// Returns the create revision of a key whose process has no response to the put yet.
    fn arrived(&self, contender: &Contender) -> Option<etcd_locked_core::Revision> {
        let kv = self.store.kv(contender.key.as_ref()?.as_bytes())?;
        Some(kv.create_revision)
    }
}
