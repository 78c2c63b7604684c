//! The names of a process: how a call comes to its turn, and how its key goes again.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::core::bundle::{self, Deletion, Look, Sight};
use crate::core::lease::{LeaseRef, State};
use crate::core::pool::family_of;
use crate::core::queue::{Call, Queue, Queued, Slot};
use crate::core::request::{
    Event, Failure, Key, Kv, Refusal, Request, Revision, TxnAnswer, WatchNews,
};
use crate::core::{
    Acquire, CallId, Core, Exchange, Grant, Output, Refused, Timer, WINDOW, WatchId, backoff,
};
use crate::error::LossCause;
use crate::site::Wait;

/// When a fresh watch is read beside: etcd may serve it 100 ms late (rule P15).
const EARLY: [Duration; 4] = [
    Duration::from_millis(5),
    Duration::from_millis(15),
    Duration::from_millis(30),
    Duration::from_millis(60),
];

/// How often a waiter reads the family even if its watch is silent (rule P17).
const FLOOR: Duration = Duration::from_secs(5);

/// How long a lock is held before its key is watched: short sections pay nothing (rule P18).
const GUARD_AFTER: Duration = Duration::from_secs(1);

/// How long a watch stays open after the name was last wanted (rule P15).
const WARM: Duration = Duration::from_secs(5);

/// How long a release waits for its confirmation (rule P25).
const CONFIRM: Duration = Duration::from_secs(2);

impl Core {
    pub(super) fn acquire(&mut self, now: Moment, acquire: Acquire) {
        let Acquire {
            call,
            name,
            ttl_secs,
            wait,
            record,
            nested,
        } = acquire;
        if self.refuses(nested) {
            return self.refuse(call, Refused::ShuttingDown);
        }
        let queue = self
            .queues
            .entry(name.clone())
            .or_insert_with(|| Queue::new(family_of(&name)));
        let once = wait == Wait::Once;
        if once && !(queue.calls.is_empty() && matches!(queue.slot, Slot::Free)) {
            let holder = queue.holder();
            return self.refuse(call, Refused::Held { holder });
        }
        let until = match wait {
            Wait::For(wait) => Some(now + wait),
            Wait::Once | Wait::Forever => None,
        };
        queue.calls.push_back(Call {
            id: call,
            ttl_secs,
            record,
            since: now,
            until,
            once,
            put_once: false,
            nested,
        });
        self.calls.insert(call, name.clone());
        if let Some(until) = until {
            self.at(until, Timer::Wait(call));
        }
        self.advance(now, &name);
    }

    pub(super) fn cancel(&mut self, now: Moment, call: CallId) {
        if let Some((name, _)) = self.withdraw(call) {
            self.calls.remove(&call);
            self.advance(now, &name);
        }
    }

    /// Takes a waiting call out of its queue.
    pub(super) fn withdraw(&mut self, call: CallId) -> Option<(Key, Call)> {
        let name = self.calls.get(&call)?.clone();
        let call = self.queues.get_mut(&name)?.remove(call)?;
        if let Some(until) = call.until {
            self.timers.remove(&(until, Timer::Wait(call.id)));
        }
        Some((name, call))
    }

    pub(super) fn wait_over(&mut self, now: Moment, call: CallId) {
        let Some((name, waiting)) = self.withdraw(call) else {
            return;
        };
        let Some(queue) = self.queues.get(&name) else {
            return;
        };
        let trouble = match queue.slot {
            Slot::Wanting { lease } | Slot::Doubt { lease } => {
                self.leases.get(&lease).and_then(|l| l.trouble.clone())
            }
            _ => None,
        };
        let why = match trouble {
            Some(trouble) => Refused::Backend(trouble.cause),
            None => Refused::Timeout {
                holder: queue.holder(),
                waited: now - waiting.since,
            },
        };
        self.refuse(call, why);
        self.advance(now, &name);
    }

    /// Takes the next step for a name, if it is ours to take.
    pub(super) fn advance(&mut self, now: Moment, name: &Key) {
        let Some(queue) = self.queues.get(name) else {
            return;
        };
        match &queue.slot {
            Slot::Free => match queue.calls.front() {
                Some(call) => {
                    let lease = self.lease_for(now, call.ttl_secs);
                    self.want(name, lease);
                }
                None => self.retire_queue(now, name),
            },
            Slot::Wanting { lease } => {
                let lease = *lease;
                let fits = self.leases.get(&lease).map(|l| l.ttl_secs);
                if queue.calls.front().map(|call| call.ttl_secs) != fits {
                    self.free(now, name);
                }
            }
            Slot::Queued(queued) => {
                let (lease, ready) = (queued.lease, queued.ready);
                let Some(l) = self.leases.get_mut(&lease) else {
                    return;
                };
                let fits = queue
                    .calls
                    .front()
                    .is_some_and(|call| call.ttl_secs == l.ttl_secs);
                match ready {
                    _ if !fits => self.delete(now, name),
                    Some(revision) if l.is_fresh(now) => self.grant(now, name, revision),
                    Some(_) => {
                        l.unfresh.push(name.clone());
                        self.renew(now, lease);
                    }
                    None => {}
                }
            }
            Slot::Putting { .. }
            | Slot::Doubt { .. }
            | Slot::Held { .. }
            | Slot::Deleting { .. } => {}
        }
    }

    /// Queues the name to be put under this lease.
    fn want(&mut self, name: &Key, lease: LeaseRef) {
        if let (Some(queue), Some(l)) = (self.queues.get_mut(name), self.leases.get_mut(&lease)) {
            queue.slot = Slot::Wanting { lease };
            l.pending.push_back(name.clone());
        }
    }

    fn free(&mut self, now: Moment, name: &Key) {
        if let Some(queue) = self.queues.get_mut(name) {
            queue.slot = Slot::Free;
        }
        self.advance(now, name);
    }

    /// Nobody here wants the name: forgets it, its watch a little later.
    fn retire_queue(&mut self, now: Moment, name: &Key) {
        match self.queues.get_mut(name) {
            Some(queue) if queue.watch.is_some() => {
                queue.reread_at = Some(now + WARM);
                self.at(now + WARM, Timer::Rest(name.clone()));
            }
            _ => {
                self.queues.remove(name);
            }
        }
    }

    pub(super) fn rest(&mut self, now: Moment, name: &Key) {
        let Some(queue) = self.queues.get(name) else {
            return;
        };
        let idle = matches!(queue.slot, Slot::Free) && queue.calls.is_empty();
        if idle && queue.reread_at.is_some_and(|at| at <= now) {
            if let Some(id) = queue.watch {
                self.watches.remove(&id);
                self.outputs.push_back(Output::Unwatch { id });
            }
            self.queues.remove(name);
        }
    }

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
                self.highest = self.highest.max(answer.revision);
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
        self.highest = self.highest.max(answer.revision);
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
                    self.refuse(call, Refused::Held { holder });
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
            self.refuse(call, Refused::Held { holder: None });
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
    fn orphan(&mut self, lease: LeaseRef, name: &Key, created: Revision) {
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

    /// Watches and reads the family of a name that is queued behind others.
    fn wait_for_turn(&mut self, name: &Key, revision: Revision) {
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        if !matches!(queue.slot, Slot::Queued(Queued { ready: None, .. })) {
            return;
        }
        queue.reads = 0;
        self.open_watch(name, revision);
        self.looks.insert(name.clone());
    }

    fn open_watch(&mut self, name: &Key, from: Revision) {
        let id = self.new_id();
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        if queue.watch.is_none() {
            queue.watch = Some(id);
            self.watches.insert(id, name.clone());
            self.outputs.push_back(Output::Watch {
                id,
                prefix: queue.family.clone(),
                from,
            });
        }
    }

    /// The name has been held for a while: its key is watched from now on, so that an operator's hand is felt.
    pub(super) fn guard(&mut self, name: &Key) {
        let Some(queue) = self.queues.get(name) else {
            return;
        };
        if let Slot::Held {
            seen, lost: false, ..
        } = queue.slot
        {
            self.open_watch(name, seen);
        }
    }

    /// The head of the queue has its lock.
    fn grant(&mut self, now: Moment, name: &Key, ready: Revision) {
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        let Slot::Queued(Queued { lease, created, .. }) = queue.slot else {
            return;
        };
        let Some(l) = self.leases.get_mut(&lease) else {
            return;
        };
        let Some(call) = queue.calls.pop_front() else {
            return;
        };
        l.bodies += 1;
        let grant = Grant {
            call: call.id,
            key: bundle::own_key(&queue.family, l.id),
            created,
            revision: ready.max(created),
            deadline: l.deadline.clone(),
        };
        let guard_at = now + GUARD_AFTER;
        queue.slot = Slot::Held {
            lease,
            created,
            call: call.id,
            seen: ready,
            guard_at,
            lost: false,
        };
        queue.owner = None;
        queue.reread_at = None;
        if let Some(until) = call.until {
            self.timers.remove(&(until, Timer::Wait(call.id)));
        }
        if queue.watch.is_none() {
            self.at(guard_at, Timer::Guard(name.clone()));
        }
        self.outputs.push_back(Output::Granted(grant));
    }

    /// The body of a call is gone: now its key may go (rule P26).
    pub(super) fn release(&mut self, now: Moment, call: CallId, confirm: bool) {
        let Some(name) = self.calls.remove(&call) else {
            return;
        };
        let Some(queue) = self.queues.get_mut(&name) else {
            return;
        };
        let Slot::Held {
            lease,
            created,
            call: of,
            guard_at,
            ..
        } = queue.slot
        else {
            return;
        };
        if of != call {
            return;
        }
        self.timers.remove(&(guard_at, Timer::Guard(name.clone())));
        let Some(l) = self.leases.get_mut(&lease) else {
            return;
        };
        l.bodies -= 1;
        let key = bundle::own_key(&queue.family, l.id);
        self.deletions.push_back(Deletion {
            name: name.clone(),
            key,
            created,
            lease,
        });
        if l.state == State::Lost {
            // Best effort: the next put goes by another lease and so by another key.
            if confirm {
                self.outputs.push_back(Output::Released {
                    call,
                    result: Err(Refused::Lost {
                        cause: LossCause::Expired,
                    }),
                });
            }
            queue.slot = Slot::Free;
            self.advance(now, &name);
        } else {
            queue.slot = Slot::Deleting {
                lease,
                created,
                confirm: confirm.then_some(call),
            };
            if confirm {
                self.calls.insert(call, name);
                self.at(now + CONFIRM, Timer::Confirm(call));
            }
        }
        self.flush_deletions(now);
        self.revoke_if_done(now, lease);
    }

    /// Whoever waits for a release has waited long enough; the key stays on our list (rule P25).
    pub(super) fn confirm_over(&mut self, call: CallId) {
        let Some(name) = self.calls.remove(&call) else {
            return;
        };
        let Some(queue) = self.queues.get_mut(&name) else {
            return;
        };
        if let Slot::Deleting { confirm, lease, .. } = &mut queue.slot
            && *confirm == Some(call)
        {
            *confirm = None;
            let trouble = self.leases.get(lease).and_then(|l| l.trouble.clone());
            let cause = match trouble {
                Some(trouble) => trouble.cause,
                None => Arc::from(Box::from("etcd did not confirm the release in time")),
            };
            self.outputs.push_back(Output::Released {
                call,
                result: Err(Refused::Backend(cause)),
            });
        }
    }

    /// Deletes the key of a queue that nobody here wants.
    fn delete(&mut self, now: Moment, name: &Key) {
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        let Slot::Queued(Queued { lease, created, .. }) = queue.slot else {
            return;
        };
        let Some(l) = self.leases.get(&lease) else {
            return;
        };
        let key = bundle::own_key(&queue.family, l.id);
        queue.slot = Slot::Deleting {
            lease,
            created,
            confirm: None,
        };
        self.deletions.push_back(Deletion {
            name: name.clone(),
            key,
            created,
            lease,
        });
        self.flush_deletions(now);
    }

    /// Sends the deletions that wait, as long as the window is free.
    pub(super) fn flush_deletions(&mut self, now: Moment) {
        if self.deletions_after.is_some_and(|after| now < after) {
            return;
        }
        while self.deletes_under_way < WINDOW && !self.deletions.is_empty() {
            let many = self.deletions.len().min(bundle::LOCKS);
            let deletions: Vec<Deletion> = self.deletions.drain(..many).collect();
            self.deletes_under_way += 1;
            self.send(
                now,
                Request::Txn(bundle::delete(&deletions)),
                Exchange::Delete(deletions),
            );
        }
    }

    pub(super) fn deleted(
        &mut self,
        now: Moment,
        deletions: Vec<Deletion>,
        result: Result<TxnAnswer, Failure>,
    ) {
        self.deletes_under_way -= 1;
        match result {
            Ok(answer) => {
                self.highest = self.highest.max(answer.revision);
                self.deletions_after = None;
                let left = bundle::undeleted(deletions.clone(), answer);
                for deletion in deletions.iter().filter(|d| !left.contains(d)) {
                    self.gone(now, deletion);
                }
                self.deletions.extend(left);
            }
            // Guarded, so it may be sent as often as we like (rule P24).
            Err(Failure::Unavailable(_) | Failure::Unknown(_)) => {
                let after = now + backoff(2);
                self.deletions_after = Some(after);
                self.at(after, Timer::Flush);
                let leases = &self.leases;
                self.deletions.extend(
                    deletions
                        .into_iter()
                        .filter(|d| leases.contains_key(&d.lease)),
                );
            }
            Err(Failure::Refused { .. }) if deletions.len() > 1 => {
                let (left, right) = deletions.split_at(deletions.len() / 2);
                for half in [left, right] {
                    self.deletes_under_way += 1;
                    self.send(
                        now,
                        Request::Txn(bundle::delete(half)),
                        Exchange::Delete(half.to_vec()),
                    );
                }
            }
            // We may not delete it: it goes with its lease.
            Err(failure) => {
                for deletion in deletions {
                    if let Some(call) = self.confirming(&deletion) {
                        self.outputs.push_back(Output::Released {
                            call,
                            result: Err(Refused::by(failure.clone())),
                        });
                    }
                    self.retire(now, deletion.lease);
                    self.gone(now, &deletion);
                }
            }
        }
    }

    /// The call that waits for this deletion, if any; it waits no longer.
    fn confirming(&mut self, deletion: &Deletion) -> Option<CallId> {
        let queue = self.queues.get_mut(&deletion.name)?;
        match &mut queue.slot {
            Slot::Deleting {
                lease,
                created,
                confirm,
            } if *lease == deletion.lease && *created == deletion.created => {
                let call = confirm.take()?;
                self.calls.remove(&call);
                Some(call)
            }
            _ => None,
        }
    }

    /// The incarnation is known to be gone.
    fn gone(&mut self, now: Moment, deletion: &Deletion) {
        if let Some(call) = self.confirming(deletion) {
            self.outputs.push_back(Output::Released {
                call,
                result: Ok(()),
            });
        }
        let Some(queue) = self.queues.get(&deletion.name) else {
            return;
        };
        if let Slot::Deleting { lease, created, .. } = queue.slot
            && (lease, created) == (deletion.lease, deletion.created)
        {
            self.free(now, &deletion.name);
        }
    }

    /// Looks at a name again if it is due.
    pub(super) fn look_if_due(&mut self, now: Moment, name: &Key) {
        let Some(queue) = self.queues.get(name) else {
            return;
        };
        if matches!(queue.slot, Slot::Queued(_)) && queue.reread_at.is_some_and(|at| at <= now) {
            self.looks.insert(name.clone());
        }
    }

    /// Sends the looks that wait, as long as the window is free.
    pub(super) fn flush_looks(&mut self, now: Moment) {
        while self.looks_under_way < WINDOW && !self.looks.is_empty() {
            let mut looks = Vec::new();
            let mut later = Vec::new();
            while looks.len() < bundle::READS {
                let Some(name) = self.looks.pop_first() else {
                    break;
                };
                let Some(queue) = self.queues.get_mut(&name) else {
                    continue;
                };
                if queue.reading {
                    later.push(name);
                    continue;
                }
                let (Slot::Queued(Queued { lease, created, .. })
                | Slot::Held { lease, created, .. }) = queue.slot
                else {
                    continue;
                };
                let Some(l) = self.leases.get(&lease) else {
                    continue;
                };
                queue.reading = true;
                let key = bundle::own_key(&queue.family, l.id);
                looks.push(Look {
                    name,
                    family: queue.family.clone(),
                    key,
                    created,
                    whole: queue.deep,
                });
            }
            self.looks.extend(later);
            if looks.is_empty() {
                return;
            }
            self.looks_under_way += 1;
            let floor = self.highest;
            self.send(
                now,
                Request::Txn(bundle::look(&looks)),
                Exchange::Look { looks, floor },
            );
        }
    }

    pub(super) fn looked(
        &mut self,
        now: Moment,
        looks: Vec<Look>,
        floor: Revision,
        result: Result<TxnAnswer, Failure>,
    ) {
        self.looks_under_way -= 1;
        for look in &looks {
            if let Some(queue) = self.queues.get_mut(&look.name) {
                queue.reading = false;
            }
        }
        let answer = match result {
            Ok(answer) if answer.revision >= floor => answer,
            // A lagging member, or a wiped etcd (rules P20, P35): ask again, and find out which.
            stale => {
                if stale.is_ok() {
                    let lease = looks
                        .iter()
                        .find_map(|look| self.queues.get(&look.name)?.slot.lease());
                    if let Some(lease) = lease {
                        self.suspect_wipe(now, lease);
                    }
                }
                for look in looks {
                    self.look_again(now, &look.name, backoff(1));
                }
                return;
            }
        };
        let revision = answer.revision;
        self.highest = self.highest.max(revision);
        for (look, sight) in looks.into_iter().zip(bundle::sights(answer)) {
            self.saw(now, &look, sight, revision);
        }
    }

    fn look_again(&mut self, now: Moment, name: &Key, after: Duration) {
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        let at = now + after;
        queue.reread_at = Some(at);
        self.at(at, Timer::Look(name.clone()));
    }

    /// Where a name stands, at this revision.
    fn saw(&mut self, now: Moment, look: &Look, sight: Sight, revision: Revision) {
        let name = &look.name;
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        let Some(lease) = queue.slot.lease() else {
            return;
        };
        let Some(id) = self.leases.get(&lease).map(|l| l.id) else {
            return;
        };
        if queue.slot.created() != Some(look.created)
            || bundle::own_key(&queue.family, id) != look.key
        {
            return; // it was about an earlier incarnation
        }
        match sight.own {
            Some(kv) if kv.create_revision == look.created => {
                if kv.lease != id {
                    return self.repair(now, name, &kv);
                }
            }
            _ => return self.own_key_gone(now, name, LossCause::Deleted),
        }
        let (contenders, others): (Vec<Kv>, Vec<Kv>) = sight
            .oldest
            .into_iter()
            .partition(|kv| queue.contends(&kv.key));
        let hidden = !look.whole
            && (!others.is_empty()
                || sight
                    .predecessor
                    .as_ref()
                    .is_some_and(|kv| !queue.contends(&kv.key)));
        if let Slot::Queued(queued) = &mut queue.slot {
            if hidden {
                // One key is not enough to see the contenders among the deeper keys (rule P2).
                queue.deep = true;
                self.looks.insert(name.clone());
                return;
            }
            queued.seen = revision;
            let older = |kv: &&Kv| kv.create_revision < look.created;
            match contenders.first().filter(older) {
                None => queued.ready = Some(revision),
                Some(owner) => {
                    let predecessor = match look.whole {
                        true => contenders.iter().rfind(older),
                        false => sight.predecessor.as_ref(),
                    };
                    queued.predecessor = predecessor.map(|kv| (kv.key.clone(), kv.create_revision));
                    queue.owner = Some(owner.value.as_slice().into());
                }
            }
            let waiting = queued.ready.is_none();
            let refused = queue
                .calls
                .front()
                .filter(|c| c.once && waiting)
                .map(|c| c.id);
            if let Some(call) = refused {
                let holder = queue.owner.clone();
                self.withdraw(call);
                self.refuse(call, Refused::Held { holder });
            }
        }
        self.open_watch(name, revision);
        self.advance(now, name);
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        if matches!(queue.slot, Slot::Queued(_)) {
            let early = EARLY.get(queue.reads as usize).copied();
            queue.reads += 1;
            let after = match early {
                Some(after) => after,
                None => self.jittered(FLOOR),
            };
            self.look_again(now, name, after);
        }
    }

    /// Somebody put our key under another lease: it would outlive us. Attaches it again, if nobody touched it since.
    fn repair(&mut self, now: Moment, name: &Key, kv: &Kv) {
        let Some(queue) = self.queues.get(name) else {
            return;
        };
        let (Some(lease), Some(created)) = (queue.slot.lease(), queue.slot.created()) else {
            return;
        };
        let Some(l) = self.leases.get(&lease) else {
            return;
        };
        let record = queue.record.clone().unwrap_or_else(|| [].into());
        let key = bundle::own_key(&queue.family, l.id);
        let request = Request::Txn(bundle::repair(key, created, kv.mod_revision, l.id, record));
        self.send(now, request, Exchange::Repair(name.clone()));
    }

    pub(super) fn repaired(&mut self, now: Moment, name: &Key, result: Result<TxnAnswer, Failure>) {
        match result {
            Ok(answer) if answer.succeeded => self.highest = self.highest.max(answer.revision),
            Ok(_) | Err(Failure::Refused { .. }) => {
                self.own_key_gone(now, name, LossCause::Overwritten)
            }
            Err(_) => {
                self.looks.insert(name.clone());
            }
        }
    }

    /// Our key is gone, or not ours any more.
    fn own_key_gone(&mut self, now: Moment, name: &Key, cause: LossCause) {
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        let lease = queue.slot.lease();
        match &mut queue.slot {
            Slot::Held { call, lost, .. } => {
                if !std::mem::replace(lost, true) {
                    self.outputs.push_back(Output::Lost { call: *call, cause });
                }
            }
            // Overwritten, it is still there and in the way: out with it before the queue goes on.
            Slot::Queued(_) if cause == LossCause::Overwritten => self.delete(now, name),
            Slot::Queued(_) => self.free(now, name),
            _ => return,
        }
        // Perhaps the whole lease is gone: the sooner we know, the sooner the others go on.
        if let Some(lease) = lease {
            self.renew(now, lease);
        }
    }

    /// A watch told something.
    pub(super) fn news(&mut self, now: Moment, watch: WatchId, news: WatchNews) {
        let Some(name) = self.watches.get(&watch).cloned() else {
            return;
        };
        let Some(queue) = self.queues.get_mut(&name) else {
            return;
        };
        if queue.watch != Some(watch) {
            return;
        }
        let event = match news {
            WatchNews::Event(event) => event,
            WatchNews::Compacted => {
                self.watches.remove(&watch);
                queue.watch = None;
                self.looks.insert(name);
                return;
            }
        };
        let (Some(lease), Some(created)) = (queue.slot.lease(), queue.slot.created()) else {
            return;
        };
        let Some(id) = self.leases.get(&lease).map(|l| l.id) else {
            return;
        };
        let own = bundle::own_key(&queue.family, id);
        match event {
            Event::Put(kv) if kv.key == own.as_bytes() => {
                if kv.create_revision > created {
                    self.own_key_gone(now, &name, LossCause::Overwritten);
                } else if kv.create_revision == created && kv.lease != id {
                    self.repair(now, &name, &kv);
                }
            }
            Event::Delete { key, revision } if key == own.as_bytes() => {
                if revision > created {
                    self.own_key_gone(now, &name, LossCause::Deleted);
                }
            }
            // Only our predecessor's going is news; that it was the owner, only a look can tell (rule P14).
            Event::Delete { key, revision } if queue.contends(&key) => {
                if let Slot::Queued(Queued {
                    ready: None,
                    predecessor,
                    seen,
                    ..
                }) = &queue.slot
                {
                    let expected = predecessor
                        .as_ref()
                        .is_none_or(|(pred, born)| *pred == key && revision > *born);
                    if expected && revision > *seen {
                        self.looks.insert(name);
                    }
                }
            }
            Event::Put(_) | Event::Delete { .. } => {}
        }
    }
}
