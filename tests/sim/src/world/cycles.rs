//! Who really waits for whom, seen from above: over all processes and etcd, at one moment (rule P38).

use std::collections::BTreeSet;
use std::time::Duration;

use super::bench::Bench;
use super::clients::{Call, Stage};
use super::etcd::contends;
use super::nemesis::lease_of;
use super::tally::Happened;
use super::view::{self, Contender, ContenderState};
use super::violation::must;
use crate::world::{CallId, Revision, revision};
use etcd_locked_core::{Key, Moment, RequestId, Response, Seat};

/// How long the edges of a call that has gone without notice may stand: an exchange in fair weather, and many in bad.
const FAIR: Duration = Duration::from_millis(50);
const BRISK: Duration = Duration::from_secs(2);
const STORMY: Duration = Duration::from_secs(15);

impl Bench {
    /// A call of this process goes while other processes may still follow its edges.
    pub(crate) fn goes_unnoticed(&mut self, process: usize) {
        self.unnoticed.insert(process, self.now);
    }

    /// A request that is to take a call out of a cycle has reached etcd: the call, and whether it is in one.
    pub(crate) fn stands(&self, from: usize, id: RequestId) -> Option<(CallId, bool)> {
        let abort = view::abort(&self.processes[from].core, id)?;
        let keys = abort.keys.iter();
        let excused = keys
            .filter_map(|key| Some((key, self.owner(key)?)))
            .any(|(key, n)| self.is_excused(n) || self.is_going(n, key));
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
            must!(Truth, stood, "call {call} is taken out of a cycle that is none");
        }
    }

    /// A core has refused a call because of a cycle: one that etcd has confirmed, or one inside the process.
    pub(crate) fn check_deadlock(&mut self, id: CallId) {
        self.tally.count(Happened::Deadlock);
        if self.cut.remove(&id) {
            return;
        }
        let call = &self.calls[&id];
        let held = self.chain(call.outer);
        let names = call.names.iter();
        let ahead = names.flat_map(|name| self.here(id, call, name));
        let ahead: Vec<CallId> = ahead.collect();
        must!(
            Truth,
            self.reaches(ahead.clone(), &held),
            "call {id} is refused because of a cycle that is none"
        );
        let groups = self.calls.iter().filter(|(_, it)| it.may_step_back());
        let groups = groups.map(|(of, _)| *of).filter(|of| self.waits(*of));
        let groups: BTreeSet<CallId> = groups.collect();
        let others = ahead.into_iter().filter(|of| !groups.contains(of));
        must!(
            Truth,
            self.reaches_by(others.collect(), &held, groups.clone()),
            "call {id} is refused because of a cycle though one of {groups:?} could step back"
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

    /// Whether the process has given this key up, and etcd has not answered its delete: no call waits by it any more, and no other
    /// process can know.
    fn is_going(&self, n: usize, key: &Key) -> bool {
        let core = &self.processes[n].core;
        let given_up = |of: &Contender| of.detached || of.state == ContenderState::Deleting;
        let mut contenders = view::contenders(core).into_iter().filter(given_up);
        contenders.any(|of| of.key.as_ref() == Some(key))
    }

    /// Whether it waits, as far as its process can know.
    fn waits(&self, call: CallId) -> bool {
        let call = &self.calls[&call];
        matches!(call.stage, Stage::Waiting) || call.given_up
    }

    /// The process a key belongs to.
    fn owner(&self, key: &str) -> Option<usize> {
        let lease = lease_of(key)?;
        self.owners.get(&lease).copied()
    }

    /// Whether who waits for these calls waits for one of `ends`.
    fn reaches(&self, from: Vec<CallId>, ends: &[CallId]) -> bool {
        self.reaches_by(from, ends, BTreeSet::new())
    }

    /// The same, by way of none of `seen`.
    fn reaches_by(&self, from: Vec<CallId>, ends: &[CallId], mut seen: BTreeSet<CallId>) -> bool {
        seen.extend(&from);
        let mut next = from;
        while let Some(call) = next.pop() {
            if ends.contains(&call) {
                return true;
            }
            next.extend(self.ahead_of(call).into_iter().filter(|of| seen.insert(*of)));
        }
        false
    }

    /// The calls that a call waits for: those ahead of it and the holders in its process, and those with an older key at etcd; if it
    /// has its locks, the call its body has made.
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

    /// The calls of its process that are ahead of it, or hold what it cannot hold with them.
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
        let created = view::contenders_of(core, name)
            .into_iter()
            .filter(Contender::is_queued)
            .find_map(|contender| contender.created.or_else(|| self.arrived(&contender)));
        // One that is still to come is behind all that are there.
        let created = created.unwrap_or(revision(Revision::MAX));
        let family = format!("{name}/");
        let children = self.store.kvs().filter(|kv| {
            let older = kv.create_revision < created && self.process_of(kv) != Some(call.process);
            older && contends(&family, &kv.key) && call.mode.is_excluded_by(Seat::of_key(&kv.key))
        });
        for kv in children {
            let key = String::from_utf8_lossy(&kv.key);
            let Some(contender) = self.contender_of(&key, kv.create_revision) else {
                continue;
            };
            match (&contender.state, self.owner(&key)) {
                (ContenderState::Owned, _) => ahead.extend(contender.holders),
                (_, Some(n)) => {
                    let waiters = view::waiters(&self.processes[n].core, name);
                    ahead.extend(waiters.first());
                }
                (_, None) => {}
            }
        }
        ahead
    }

    /// The contender that counts on a key: a key that its process has given up is about to go.
    fn contender_of(&self, key: &str, created: etcd_locked_core::Revision) -> Option<Contender> {
        let process = &self.processes[self.owner(key)?];
        let (name, _) = key.rsplit_once('/')?;
        let seat = Seat::of_key(key.as_bytes());
        view::contenders_of(&process.core, name)
            .into_iter()
            .find(|of| !of.detached && of.created == Some(created) && of.seat == seat)
    }

    /// The create revision of a key that is there although its process has no answer yet.
    fn arrived(&self, contender: &Contender) -> Option<etcd_locked_core::Revision> {
        let kv = self.store.kv(contender.key.as_ref()?.as_bytes())?;
        Some(kv.create_revision)
    }
}
