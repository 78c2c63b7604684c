//! How a circle is cut: one transaction that takes a call's waiting keys and unwrites its edges, if every key on the circle
//! is still as it was read. Its success is the proof that the circle was one, and still is nobody else's to cut (rule P38).
//!
//! While it is under way the waiting keys are neither granted nor put nor deleted by anything else. It compares the session
//! of their lease as a put does, so that a seal settles it if it has no answer (rule P10): then the call queues on, with its
//! key or with a new one, and is not refused.

use crate::clock::Moment;
use crate::core::bundle::{self, Deletion};
use crate::core::cycle::Circle;
use crate::core::lease::{LeaseRef, State};
use crate::core::place;
use crate::core::predecessors::Predecessors;
use crate::core::publications::reads;
use crate::core::queue::{Queued, Slot, contends};
use crate::core::record::Waits;
use crate::core::request::{Compare, Failure, Key, Op, Request, Revision, Txn, TxnAnswer};
use crate::core::{CallId, Core, Exchange, Refused};

/// Operations, or conditions, of one transaction.
const OPERATIONS: usize = 128;

/// A call to be taken out of a circle, if all of that still stands.
#[derive(Debug)]
pub(crate) struct Abort {
    pub(crate) call: CallId,
    pub(crate) circle: Circle,
    /// Its waiting keys.
    pub(super) own: Vec<Deletion>,
    /// What is left on the keys its task holds; none, if it holds nothing.
    pub(super) rest: Vec<(CallId, Waits)>,
}

impl Core {
    pub(super) fn abort(&mut self, now: Moment, abort: Abort) {
        let mut when = Vec::new();
        let mut then = Vec::new();
        if let Some(lease) = abort.own.first().map(|d| d.lease) {
            let Some(l) = self.leases.get(&lease).filter(|l| l.state == State::Open) else {
                return; // a seal is under way: the next step will do
            };
            when.push(bundle::session_unchanged(l));
        }
        for link in &abort.circle.links {
            let (key, revision) = link.waiting.clone();
            when.push(Compare::CreateRevision { key, revision });
            when.push(Compare::ModRevision {
                key: link.before.key.clone(),
                revision: link.before.modified,
            });
            for (key, revision) in link.before.provided() {
                when.push(Compare::CreateRevision { key, revision });
            }
        }
        for deletion in &abort.own {
            let key = deletion.key.clone();
            let revision = deletion.created;
            when.push(Compare::CreateRevision {
                key: key.clone(),
                revision,
            });
            then.push(Op::Delete { key });
        }
        for (holder, rest) in &abort.rest {
            let keys = self.deadlocks.publications.get(holder).map(|p| &*p.keys);
            let (unmoved, puts) = self.rewrite(*holder, keys.unwrap_or_default(), rest);
            when.extend(unmoved);
            then.extend(puts);
        }
        if when.len() > OPERATIONS || then.len() > OPERATIONS {
            return;
        }
        for deletion in &abort.own {
            if let Some(queue) = self.queues.get_mut(&deletion.name) {
                queue.slot = Slot::Deleting {
                    lease: deletion.lease,
                    created: deletion.created,
                    confirm: None,
                };
            }
        }
        for (holder, rest) in &abort.rest {
            if let Some(publication) = self.deadlocks.publications.get_mut(holder) {
                publication.writes(rest);
            }
        }
        self.deadlocks.aborting.insert(abort.call);
        let or_else = reads(&then);
        let txn = Txn {
            when,
            then,
            or_else,
        };
        self.send(now, Request::Txn(txn), Exchange::Abort(Box::new(abort)));
    }

    /// The transaction was answered, or not.
    pub(super) fn aborted(
        &mut self,
        now: Moment,
        abort: Abort,
        result: Result<TxnAnswer, Failure>,
    ) {
        let Abort {
            call,
            circle,
            own,
            rest,
        } = abort;
        self.deadlocks.aborting.remove(&call);
        for (holder, _) in &rest {
            if let Some(publication) = self.deadlocks.publications.get_mut(holder) {
                publication.writing = false;
            }
        }
        match result {
            Ok(answer) if answer.succeeded => {
                for (holder, rest) in rest {
                    self.wrote(holder, rest, answer.revision);
                }
                for deletion in &own {
                    self.taken(now, deletion);
                }
                self.is_out(now, call, &circle);
                for deletion in &own {
                    self.advance(now, &deletion.name);
                }
            }
            Ok(answer) => {
                let revision = answer.revision;
                for (holder, _) in rest {
                    self.read_again(holder, &answer);
                }
                self.put_back(now, &own, revision);
            }
            Err(Failure::Unknown(cause)) => {
                if let Some(l) = own.first().and_then(|d| self.leases.get_mut(&d.lease)) {
                    l.failed(now, cause);
                }
                self.doubt(now, &own);
            }
            Err(_) => {
                let revision = own.first().map_or(0, |d| d.created);
                self.put_back(now, &own, revision);
            }
        }
        self.unwrite_stale(now);
        self.let_go(now);
    }

    /// The call is out of the circle: refused, or, if its task holds nothing, at the end of its queues.
    fn is_out(&mut self, now: Moment, call: CallId, circle: &Circle) {
        if !self.is_waiting(call) {
            return; // it has gone meanwhile, or been served
        }
        let Some(names) = self.calls.get(&call).map(|c| c.names.clone()) else {
            return;
        };
        if self.may_requeue(call) {
            self.step_back(call, &names);
            return self.advance_all(now, &names);
        }
        let first = circle.links.first().map(|link| link.waiting.0.clone());
        let is_of = |name: &Key| {
            let family = place::family_of(name);
            first
                .as_ref()
                .is_some_and(|key| contends(&family, key.as_bytes()))
        };
        let name = names.iter().position(is_of).unwrap_or(0);
        let cycle = circle.blockers();
        self.reject(now, vec![call], &Refused::Deadlock { name, cycle });
    }

    /// Whether the key is still as it was left when the transaction was sent: its lease may have been lost meanwhile.
    fn is_aborting(&self, deletion: &Deletion) -> bool {
        let slot = self.queues.get(&deletion.name).map(|queue| &queue.slot);
        matches!(slot, Some(Slot::Deleting { lease, created, .. })
            if (*lease, *created) == (deletion.lease, deletion.created))
    }

    /// The key is gone.
    fn taken(&mut self, now: Moment, deletion: &Deletion) {
        if self.is_aborting(deletion)
            && let Some(queue) = self.queues.get_mut(&deletion.name)
        {
            queue.heard = Some(now);
            queue.slot = Slot::Free;
        }
    }

    /// Nothing was applied, and nothing will be: the keys wait on, if their lease still takes acquisitions.
    fn put_back(&mut self, now: Moment, own: &[Deletion], revision: Revision) {
        for deletion in own {
            if self.is_usable(deletion.lease)
                && self.is_aborting(deletion)
                && let Some(queue) = self.queues.get_mut(&deletion.name)
            {
                queue.predecessors = Predecessors::default();
                queue.slot = Slot::Queued(Queued {
                    lease: deletion.lease,
                    created: deletion.created,
                    ready: None,
                });
            } else {
                self.deletions.push_back(deletion.clone());
            }
        }
        for deletion in own {
            self.wait_for_turn(now, &deletion.name, revision);
            self.advance(now, &deletion.name);
        }
    }

    /// The keys may be there or not: a seal will tell, and what was sent comes too late after it.
    fn doubt(&mut self, now: Moment, own: &[Deletion]) {
        for deletion in own {
            let lease = deletion.lease;
            let aborting = self.is_usable(lease) && self.is_aborting(deletion);
            let (Some(queue), Some(l), true) = (
                self.queues.get_mut(&deletion.name),
                self.leases.get_mut(&lease),
                aborting,
            ) else {
                self.deletions.push_back(deletion.clone());
                continue;
            };
            queue.slot = Slot::Doubt { lease };
            queue.predecessors = Predecessors::default();
            l.doubt.push(deletion.name.clone());
        }
        if let Some(deletion) = own.first() {
            self.seal(now, deletion.lease);
        }
    }

    fn is_usable(&self, lease: LeaseRef) -> bool {
        let l = self.leases.get(&lease);
        l.is_some_and(|l| matches!(l.state, State::Open | State::Sealing))
    }
}
