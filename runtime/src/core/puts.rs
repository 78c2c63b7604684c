//! How the keys of a process come to be: bundled, at most once each, sealed when there is no answer (rules P6 to P11).

use std::sync::Arc;

use crate::clock::Moment;
use crate::core::bundle::{self, Deletion};
use crate::core::lease::{LeaseRef, State};
use crate::core::pool::family_of;
use crate::core::queue::{Queued, Slot};
use crate::core::request::{Failure, Key, Kv, Refusal, Request, Revision, TxnAnswer};
use crate::core::{CallId, Core, Exchange, Refused, WINDOW};
use crate::error::LossCause;

impl Core {
    /// Sends one bundle of puts for each lease that may send one; true if there may be more to send.
    pub(super) fn flush_puts(&mut self, now: Moment) -> bool {
        let ready: Vec<LeaseRef> = self
            .leases
            .iter()
            .filter(|(_, l)| {
                l.state == State::Open
                    && l.in_flight < WINDOW
                    && l.hold_off <= now
                    && !l.pending.is_empty()
            })
            .map(|(lease, _)| *lease)
            .collect();
        for &lease in &ready {
            self.send_puts(now, lease);
        }
        !ready.is_empty()
    }

    fn send_puts(&mut self, now: Moment, lease: LeaseRef) {
        let mut items = Vec::new();
        let mut names = Vec::new();
        while names.len() < bundle::LOCKS {
            let Some(l) = self.leases.get_mut(&lease) else {
                return;
            };
            let Some(name) = l.pending.pop_front() else {
                break;
            };
            let Some(queue) = self.queues.get_mut(&name) else {
                continue;
            };
            if !matches!(queue.slot, Slot::Wanting { lease: of } if of == lease) {
                continue;
            }
            let Some(call) = queue.calls.front() else {
                continue;
            };
            queue.slot = Slot::Putting { lease };
            queue.record = Some(call.record.clone());
            queue.repaired = 0;
            if call.once && !call.put_once {
                let request =
                    Request::Txn(bundle::put_if_none(l, &queue.family, call.record.clone()));
                let exchange = Exchange::Try {
                    lease,
                    name,
                    call: call.id,
                };
                l.in_flight += 1;
                self.send(now, request, exchange);
                if self
                    .leases
                    .get(&lease)
                    .is_some_and(|l| l.in_flight >= WINDOW)
                {
                    break;
                }
            } else {
                items.push((queue.family.clone(), call.record.clone()));
                names.push(name);
            }
        }
        if names.is_empty() {
            return;
        }
        self.send_bundle(now, lease, names, &items);
    }

    fn send_bundle(
        &mut self,
        now: Moment,
        lease: LeaseRef,
        names: Vec<Key>,
        items: &[(Key, Arc<[u8]>)],
    ) {
        let Some(l) = self.leases.get_mut(&lease) else {
            return;
        };
        l.in_flight += 1;
        let request = Request::Txn(bundle::put(l, items));
        self.send(now, request, Exchange::Put { lease, names });
    }

    /// A bundle of puts was answered, or not (rules P8–P10).
    pub(super) fn put(
        &mut self,
        now: Moment,
        sent: Moment,
        lease: LeaseRef,
        names: Vec<Key>,
        result: Result<TxnAnswer, Failure>,
    ) {
        if let Some(l) = self.leases.get_mut(&lease) {
            l.in_flight -= 1;
        }
        match result {
            Ok(answer) if answer.succeeded => {
                self.reached(lease);
                let mut answers = answer.answers.into_iter();
                for name in names {
                    let previous = answers.next().and_then(bundle::first);
                    let oldest = answers.next().and_then(bundle::first);
                    let created = previous.map_or(answer.revision, |kv| kv.create_revision);
                    self.placed(now, lease, &name, created, answer.revision, oldest);
                }
            }
            Ok(answer) => {
                self.reached(lease);
                self.unput(now, lease, names);
                self.session_moved(now, lease, answer);
            }
            Err(failure) => self.unanswered(now, sent, lease, names, failure),
        }
    }

    /// One try was answered, or not (rule P11).
    pub(super) fn tried(
        &mut self,
        now: Moment,
        sent: Moment,
        lease: LeaseRef,
        name: &Key,
        call: CallId,
        result: Result<TxnAnswer, Failure>,
    ) {
        if let Some(l) = self.leases.get_mut(&lease) {
            l.in_flight -= 1;
        }
        let answer = match result {
            Ok(answer) => answer,
            Err(failure) => return self.unanswered(now, sent, lease, vec![name.clone()], failure),
        };
        self.reached(lease);
        if answer.succeeded {
            let revision = answer.revision;
            return self.placed_ready(now, lease, name, revision, revision);
        }
        let Some(l) = self.leases.get(&lease) else {
            return;
        };
        let mut answers = answer.answers.iter().cloned();
        let session = answers.next().and_then(bundle::first);
        let child = answers.next().and_then(bundle::first);
        let same = session.is_some_and(|kv| kv.mod_revision == l.session_revision);
        self.unput(now, lease, vec![name.clone()]);
        if !same {
            return self.session_moved(now, lease, answer);
        }
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        match child {
            Some(kv) if queue.contends(&kv.key) => {
                let holder = Some(kv.value.into());
                if self.withdraw(call).is_some() {
                    self.refuse(call, Refused::Held { name: 0, holder });
                }
                self.advance(now, name);
            }
            // Only deeper keys, as far as one key tells; or it has just gone.
            _ => {
                if let Some(call) = queue.calls.front_mut().filter(|c| c.id == call) {
                    call.put_once = true;
                }
            }
        }
    }

    /// Nothing was applied: the names want to be put again, if anybody still wants them.
    fn unput(&mut self, now: Moment, lease: LeaseRef, names: Vec<Key>) {
        for name in names.into_iter().rev() {
            let Some(queue) = self.queues.get_mut(&name) else {
                continue;
            };
            if !matches!(queue.slot, Slot::Putting { lease: of } if of == lease) {
                continue;
            }
            if let Some(l) = self.leases.get_mut(&lease) {
                queue.slot = Slot::Wanting { lease };
                l.pending.push_front(name.clone());
                self.advance(now, &name);
            }
        }
    }

    /// A bundle found another session revision than it was sent under. After a seal of ours that is as it should be.
    fn session_moved(&mut self, now: Moment, lease: LeaseRef, answer: TxnAnswer) {
        let Some(l) = self.leases.get(&lease) else {
            return;
        };
        match answer.answers.into_iter().next().and_then(bundle::first) {
            Some(kv) if kv.lease == l.id => {
                if kv.mod_revision != l.session_revision {
                    self.seal(now, lease);
                }
            }
            _ => self.retire(now, lease),
        }
    }

    /// A bundle has no answer.
    fn unanswered(
        &mut self,
        now: Moment,
        sent: Moment,
        lease: LeaseRef,
        names: Vec<Key>,
        failure: Failure,
    ) {
        match failure {
            Failure::Unavailable(cause) => {
                self.unput(now, lease, names);
                self.hold_off(now, lease, sent, cause);
            }
            Failure::Unknown(cause) => {
                if let Some(l) = self.leases.get_mut(&lease) {
                    l.failed(sent, cause);
                }
                for name in names {
                    let Some(queue) = self.queues.get_mut(&name) else {
                        continue;
                    };
                    if matches!(queue.slot, Slot::Putting { lease: of } if of == lease) {
                        queue.slot = Slot::Doubt { lease };
                        if let Some(l) = self.leases.get_mut(&lease) {
                            l.doubt.push(name);
                        }
                    }
                }
                self.seal(now, lease);
            }
            Failure::Refused {
                kind: Refusal::LeaseNotFound,
                ..
            } => {
                self.unput(now, lease, names);
                self.lose(now, lease, LossCause::Revoked);
            }
            // One bad name fails all: the halves go their own ways (rule P9).
            Failure::Refused { .. } if names.len() > 1 => {
                let (left, right) = names.split_at(names.len() / 2);
                for half in [left, right] {
                    self.put_half(now, lease, half);
                }
            }
            failure @ Failure::Refused { .. } => {
                let why = Refused::by(failure);
                for name in names {
                    let Some(queue) = self.queues.get_mut(&name) else {
                        continue;
                    };
                    if !matches!(queue.slot, Slot::Putting { lease: of } if of == lease) {
                        continue;
                    }
                    queue.slot = Slot::Free;
                    if let Some(call) = queue.calls.front().map(|c| c.id) {
                        self.withdraw(call);
                        self.refuse(call, why.clone());
                    }
                    self.advance(now, &name);
                }
            }
        }
    }

    fn put_half(&mut self, now: Moment, lease: LeaseRef, names: &[Key]) {
        let mut items = Vec::new();
        let mut still = Vec::new();
        for name in names {
            let Some(queue) = self.queues.get_mut(name) else {
                continue;
            };
            if matches!(queue.slot, Slot::Putting { lease: of } if of == lease) {
                let record = queue.record.clone().unwrap_or_else(|| [].into());
                items.push((queue.family.clone(), record));
                still.push(name.clone());
            }
        }
        let open = self
            .leases
            .get(&lease)
            .is_some_and(|l| l.state == State::Open);
        if !open {
            self.unput(now, lease, still);
        } else if !still.is_empty() {
            self.send_bundle(now, lease, still, &items);
        }
    }

    /// A put was applied; `oldest` is the oldest key below the name.
    fn placed(
        &mut self,
        now: Moment,
        lease: LeaseRef,
        name: &Key,
        created: Revision,
        revision: Revision,
        oldest: Option<Kv>,
    ) {
        let Some(l) = self.leases.get(&lease) else {
            return;
        };
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        let key = bundle::own_key(&queue.family, l.id);
        if oldest.as_ref().is_some_and(|kv| kv.key == key.as_bytes()) {
            return self.placed_ready(now, lease, name, created, revision);
        }
        if !matches!(queue.slot, Slot::Putting { lease: of } if of == lease) {
            return self.orphan(lease, name, created);
        }
        queue.heard = Some(now);
        queue.deep |= oldest.is_some_and(|kv| !queue.contends(&kv.key));
        queue.slot = Slot::Queued(Queued {
            lease,
            created,
            ready: None,
            predecessor: None,
            seen: revision,
        });
        // Deeper keys hide who contends: only a look tells whether a single try was granted.
        let refused = queue
            .calls
            .front()
            .filter(|c| c.once && !queue.deep)
            .map(|c| c.id);
        if let Some(call) = refused {
            self.withdraw(call);
            self.refuse(
                call,
                Refused::Held {
                    name: 0,
                    holder: None,
                },
            );
        }
        self.advance(now, name);
        self.wait_for_turn(name, revision);
    }

    /// A put was applied and nothing older excludes it.
    fn placed_ready(
        &mut self,
        now: Moment,
        lease: LeaseRef,
        name: &Key,
        created: Revision,
        revision: Revision,
    ) {
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        if !matches!(queue.slot, Slot::Putting { lease: of } if of == lease) {
            return self.orphan(lease, name, created);
        }
        queue.heard = Some(now);
        queue.slot = Slot::Queued(Queued {
            lease,
            created,
            ready: Some(revision),
            predecessor: None,
            seen: revision,
        });
        self.advance(now, name);
    }

    /// A key that no queue counts on any more: its lease was left while the put was under way.
    pub(super) fn orphan(&mut self, lease: LeaseRef, name: &Key, created: Revision) {
        if let Some(l) = self.leases.get(&lease) {
            let key = bundle::own_key(&family_of(name), l.id);
            self.deletions.push_back(Deletion {
                name: name.clone(),
                key,
                created,
                lease,
            });
        }
    }

    /// A seal told whether a key in doubt exists.
    pub(super) fn settle(
        &mut self,
        now: Moment,
        lease: LeaseRef,
        name: &Key,
        revision: Revision,
        kv: Option<Kv>,
    ) {
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        if !matches!(queue.slot, Slot::Doubt { lease: of } if of == lease) {
            return;
        }
        queue.heard = Some(now);
        queue.slot = match kv {
            Some(kv) => Slot::Queued(Queued {
                lease,
                created: kv.create_revision,
                ready: None,
                predecessor: None,
                seen: revision,
            }),
            None => Slot::Free,
        };
        self.advance(now, name);
        self.wait_for_turn(name, revision);
    }
}
