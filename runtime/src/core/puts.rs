//! How the keys of a process come to be: bundled, at most once each, sealed when there is no answer (rules P6 to P10).

use std::sync::Arc;

use crate::clock::Moment;
use crate::core::bundle::{self, Deletion, Item};
use crate::core::call::Bid;
use crate::core::lease::{LeaseRef, State};
use crate::core::mode::Seat;
use crate::core::place;
use crate::core::predecessors::Predecessors;
use crate::core::queue::{Queued, Slot};
use crate::core::record;
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
        let mut bids = Vec::new();
        while items.len() < bundle::LOCKS {
            let Some(l) = self.leases.get_mut(&lease) else {
                return;
            };
            let Some(bid) = l.pending.pop_front() else {
                break;
            };
            if items.len() + bid.names.len() > bundle::LOCKS {
                l.pending.push_front(bid); // never split: it opens the next bundle
                break;
            }
            if !self.wants(&bid, lease) {
                continue;
            }
            let Some((call, once, record)) = self.bidder(&bid) else {
                continue;
            };
            let Some(id) = self.leases.get(&lease).map(|l| l.id) else {
                return;
            };
            let together = if once {
                Vec::new()
            } else {
                self.keys_of(&bid, lease)
            };
            let mut families = Vec::with_capacity(bid.names.len());
            let mut put = Vec::new();
            for name in &*bid.names {
                if let Some(queue) = self.queues.get_mut(name) {
                    let record = record::of_group(&record, &queue.family, &together);
                    queue.slot = Slot::Putting { lease };
                    queue.predecessors = Predecessors::default();
                    queue.record = Some(record.clone());
                    queue.repaired = 0;
                    queue.suspected = false;
                    families.push(queue.family.clone());
                    put.push(queue.item(id, record));
                }
            }
            if !once {
                items.append(&mut put);
                bids.push(bid);
                continue;
            }
            let Some(l) = self.leases.get_mut(&lease) else {
                return;
            };
            l.in_flight += 1;
            let full = l.in_flight >= WINDOW;
            let request = Request::Txn(bundle::put_if_none(l, &families, &record));
            self.send(now, request, Exchange::Try { lease, bid, call });
            if full {
                break;
            }
        }
        if !bids.is_empty() {
            self.send_bundle(now, lease, bids, &items);
        }
    }

    /// Who bids: the call, whether it is a single try that has not met deeper keys, and its record.
    fn bidder(&self, bid: &Bid) -> Option<(CallId, bool, Arc<[u8]>)> {
        let call = self.head(bid.names.first()?)?;
        let bidder = self.calls.get(&call)?;
        let once = bidder.once && !bidder.put_once;
        Some((call, once, bidder.record.clone()))
    }

    /// The keys of a group, which its records tell of (rule P38); none of what is put for a single name.
    fn keys_of(&self, bid: &Bid, lease: LeaseRef) -> Vec<Key> {
        let Some(l) = self.leases.get(&lease).filter(|_| bid.group.is_some()) else {
            return Vec::new();
        };
        let names = bid.names.iter();
        names.map(|name| place::own_key(name, l.id)).collect()
    }

    fn send_bundle(&mut self, now: Moment, lease: LeaseRef, bids: Vec<Bid>, items: &[Item]) {
        let Some(l) = self.leases.get_mut(&lease) else {
            return;
        };
        l.in_flight += 1;
        let request = Request::Txn(bundle::put(l, items));
        self.send(now, request, Exchange::Put { lease, bids });
    }

    /// A bundle of puts was answered, or not (rules P8–P10).
    pub(super) fn put(
        &mut self,
        now: Moment,
        sent: Moment,
        lease: LeaseRef,
        bids: Vec<Bid>,
        result: Result<TxnAnswer, Failure>,
    ) {
        if let Some(l) = self.leases.get_mut(&lease) {
            l.in_flight -= 1;
        }
        match result {
            Ok(answer) if answer.succeeded => {
                self.reached(lease);
                let revision = answer.revision;
                let mut answers = answer.answers.into_iter();
                for bid in bids {
                    for name in &*bid.names {
                        let previous = answers.next().and_then(bundle::first);
                        let found = answers.next().map(bundle::found).unwrap_or_default();
                        let created = previous.map_or(revision, |kv| kv.create_revision);
                        self.placed(now, lease, name, created, revision, found);
                    }
                    for name in &*bid.names {
                        self.wait_for_turn(now, name, revision);
                    }
                }
            }
            Ok(answer) => {
                self.reached(lease);
                self.unput(now, lease, bids);
                self.session_moved(now, lease, answer);
            }
            Err(failure) => self.unanswered(now, sent, lease, bids, failure),
        }
    }

    /// Nothing was applied: the names want to be put again, if anybody still wants them.
    pub(super) fn unput(&mut self, now: Moment, lease: LeaseRef, bids: Vec<Bid>) {
        for bid in bids.into_iter().rev() {
            let Some(l) = self.leases.get_mut(&lease) else {
                continue;
            };
            let mut back = false;
            for name in &*bid.names {
                if let Some(queue) = self.queues.get_mut(name)
                    && queue.is_putting(lease)
                {
                    queue.slot = Slot::Wanting { lease };
                    back = true;
                }
            }
            if back {
                l.pending.push_front(bid.clone());
                self.advance_all(now, &bid.names);
            }
        }
    }

    /// A bundle found another session revision than it was sent under. After a seal of ours that is as it should be.
    pub(super) fn session_moved(&mut self, now: Moment, lease: LeaseRef, answer: TxnAnswer) {
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
    pub(super) fn unanswered(
        &mut self,
        now: Moment,
        sent: Moment,
        lease: LeaseRef,
        bids: Vec<Bid>,
        failure: Failure,
    ) {
        match failure {
            Failure::Unavailable(cause) => {
                self.unput(now, lease, bids);
                self.hold_off(now, lease, sent, cause);
            }
            Failure::Unknown(cause) => {
                self.doubt_for_others(lease, &bids);
                if let Some(l) = self.leases.get_mut(&lease) {
                    l.failed(sent, cause);
                    for name in bids.iter().flat_map(|bid| &*bid.names) {
                        if let Some(queue) = self.queues.get_mut(name)
                            && queue.is_putting(lease)
                        {
                            queue.slot = Slot::Doubt { lease };
                            l.doubt.push(name.clone());
                        }
                    }
                }
                self.seal(now, lease);
            }
            Failure::Refused {
                kind: Refusal::LeaseNotFound,
                ..
            } => {
                self.unput(now, lease, bids);
                self.lose(now, lease, LossCause::Revoked);
            }
            // One bad name fails all: the halves go their own ways, but no group is torn (rules P9, P13).
            Failure::Refused { .. } if bids.len() > 1 => {
                let (left, right) = bids.split_at(bids.len() / 2);
                for half in [left, right] {
                    self.put_half(now, lease, half);
                }
            }
            failure @ Failure::Refused { .. } => {
                let why = Refused::by(failure);
                for bid in bids {
                    self.put_refused(now, lease, &bid, &why);
                }
            }
        }
    }

    /// Whoever the keys were for does not get them.
    fn put_refused(&mut self, now: Moment, lease: LeaseRef, bid: &Bid, why: &Refused) {
        let mut refused = Vec::new();
        for name in &*bid.names {
            let Some(queue) = self.queues.get(name).filter(|q| q.is_putting(lease)) else {
                continue;
            };
            if self.fits(queue) {
                refused.extend(self.head_of(queue));
            }
            if let Some(queue) = self.queues.get_mut(name) {
                queue.slot = Slot::Free;
            }
        }
        self.reject(now, refused, why);
        self.advance_all(now, &bid.names);
    }

    fn put_half(&mut self, now: Moment, lease: LeaseRef, bids: &[Bid]) {
        let Some(id) = self.leases.get(&lease).map(|l| l.id) else {
            return;
        };
        let mut items = Vec::new();
        let mut still = Vec::new();
        for bid in bids {
            let queues = bid.names.iter().filter_map(|name| self.queues.get(name));
            let putting = queues
                .filter(|queue| queue.is_putting(lease))
                .map(|queue| queue.item(id, queue.record.clone().unwrap_or_else(|| [].into())));
            let putting: Vec<_> = putting.collect();
            if putting.len() == bid.names.len() {
                items.extend(putting);
                still.push(bid.clone());
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

    /// A put was applied; `found` is the oldest key below the name, or all of them.
    fn placed(
        &mut self,
        now: Moment,
        lease: LeaseRef,
        name: &Key,
        created: Revision,
        revision: Revision,
        found: Vec<Kv>,
    ) {
        let Some(l) = self.leases.get(&lease) else {
            return;
        };
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        let key = queue.own_key(l.id);
        let is_own = |kv: &Kv| kv.key == key.as_bytes();
        if !queue.is_putting(lease) {
            return self.orphan(lease, name, created);
        }
        if queue.predecessors.touched > created {
            // It was there, and is gone again, or so a watch said before this answer came.
            queue.slot = Slot::Queued(Queued {
                lease,
                created,
                ready: None,
            });
            return;
        }
        if found.first().is_some_and(is_own) {
            return self.placed_ready(now, lease, name, created, revision);
        }
        queue.heard = Some(now);
        queue.deep |= found.first().is_some_and(|kv| !queue.contends(&kv.key));
        // Ours is among them: so they are all there are.
        let mut ready = None;
        let mut disagrees = false;
        if found.iter().any(is_own) {
            let older = |kv: &Kv| kv.create_revision < created && queue.counts(kv);
            let older: Vec<Kv> = found.into_iter().filter(older).collect();
            disagrees = older.iter().any(|kv| queue.disagrees(kv).is_some());
            queue.predecessors.read(revision, older);
            ready = queue.turn_at();
        }
        let shared = queue.seat != Seat::Exclusive;
        queue.slot = Slot::Queued(Queued {
            lease,
            created,
            ready,
        });
        // Deeper keys hide who contends: only a look tells whether a single try was granted.
        let told = queue.predecessors.are_known() || !queue.deep;
        if ready.is_none() && shared {
            // Who it is that a try, or another number of permits, meets is for a look to tell.
            let line = self.queues.get(place::name_of(name));
            let mut line = line.iter().flat_map(|queue| &queue.calls);
            let tries = |call: &CallId| self.calls.get(call).is_some_and(|c| c.once);
            if disagrees || line.any(tries) {
                self.looks.insert(name.clone());
            }
        } else if ready.is_none() && told {
            self.refuse_try(now, name, None);
        }
        self.advance(now, name);
    }

    /// A put was applied and nothing older excludes it.
    pub(super) fn placed_ready(
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
        if !queue.is_putting(lease) {
            return self.orphan(lease, name, created);
        }
        queue.heard = Some(now);
        queue.slot = Slot::Queued(Queued {
            lease,
            created,
            ready: Some(revision),
        });
        self.advance(now, name);
    }

    /// A key that no queue counts on any more: its lease was left while the put was under way.
    pub(super) fn orphan(&mut self, lease: LeaseRef, name: &Key, created: Revision) {
        if let Some(l) = self.leases.get(&lease) {
            let key = place::own_key(name, l.id);
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
            }),
            None => Slot::Free,
        };
        self.advance(now, name);
        self.wait_for_turn(now, name, revision);
    }
}
