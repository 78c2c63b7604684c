//! How a process learns where its keys stand by reading (rules P14 to P20); what it is told is in [`watches`](super::watches).

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::core::bundle::{self, Asks, Look, Sight};
use crate::core::mode::{Mode, Seat};
use crate::core::queue::{self, Queue, Queued, Slot, Watched};
use crate::core::record::{self, Incarnation};
use crate::core::request::{Failure, Key, Kv, Request, Revision, TxnAnswer};
use crate::core::{Core, Exchange, Timer, WINDOW};
use crate::error::LossCause;

/// When a fresh watch is read beside: etcd may serve it 100 ms late (rule P15).
const EARLY: [Duration; 4] = [
    Duration::from_millis(5),
    Duration::from_millis(15),
    Duration::from_millis(30),
    Duration::from_millis(60),
];

/// From then on a watch is not fresh any more.
const FRESH: Duration = Duration::from_millis(150);

/// How long a waiter relies on what it is told before it reads for the first time: who has the name is not told.
const RELIES: Duration = Duration::from_secs(1);

/// How often a waiter reads the family even if its watch is silent (rule P17).
pub(super) const FLOOR: Duration = Duration::from_secs(5);

/// When to read beside the watch of a name that waits, if that is fresh: often near the head, once deep in the queue, where
/// each reading goes through many keys.
fn early(now: Moment, queue: &Queue) -> Option<Duration> {
    let fresh = |watched: &&Watched| now - watched.opened < FRESH;
    let watched = queue.watch.as_ref().filter(fresh)?;
    match watched.prefix == queue.family {
        true => EARLY.get(queue.reads as usize).copied(),
        false => (queue.reads == 0).then_some(FRESH),
    }
}

/// Names that wait to be looked at: each once, and none before one that came earlier.
#[derive(Debug, Default)]
pub(super) struct Line {
    order: VecDeque<Key>,
    names: BTreeSet<Key>,
}

impl Line {
    pub(super) fn insert(&mut self, name: Key) {
        if self.names.insert(name.clone()) {
            self.order.push_back(name);
        }
    }

    fn pop(&mut self) -> Option<Key> {
        let name = self.order.pop_front()?;
        self.names.remove(&name);
        Some(name)
    }

    fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

/// One of these keys that waits behind one of ours, or behind those that share the name with it (rules P23, P37).
fn waits_behind(
    mode: Mode,
    created: Revision,
    mut others: impl Iterator<Item = Kv>,
) -> Option<Incarnation> {
    let mut all = 0;
    let behind = others.find(|kv| {
        let excluded = mode.is_excluded_by(Seat::of_key(&kv.key));
        all += usize::from(!excluded);
        let full = mode.beside().is_some_and(|room| all > room + 1);
        (excluded && kv.create_revision > created) || full
    })?;
    Some(record::incarnation(behind))
}

impl Core {
    /// Watches what is before a name that is queued behind others, or reads what that is.
    pub(super) fn wait_for_turn(&mut self, now: Moment, name: &Key, revision: Revision) {
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        // A key of a group may be ready long before its others are: it is watched like a held one (rule P18).
        let Slot::Queued(Queued { ready, .. }) = &queue.slot else {
            return;
        };
        if ready.is_some() && queue.group.is_none() {
            return;
        }
        queue.reads = 0;
        if !queue.predecessors.are_known() {
            self.looks.insert(name.clone());
            return;
        }
        let until = self.head(name);
        let until = until.and_then(|call| self.calls.get(&call)?.until);
        let rest = until.map_or(RELIES, |until| (until - now) / 2);
        self.watch_others(now, name, revision);
        let early = self.queues.get(name).and_then(|queue| early(now, queue));
        self.look_again(now, name, early.unwrap_or(rest.min(RELIES)));
    }

    /// Looks at a name again if it is due.
    pub(super) fn look_if_due(&mut self, now: Moment, name: &Key) {
        let Some(queue) = self.queues.get(name) else {
            return;
        };
        if queue.is_watched() && queue.reread_at.is_some_and(|at| at <= now) {
            self.looks.insert(name.clone());
        }
    }

    /// Sends the looks that wait, as long as the window is free.
    pub(super) fn flush_looks(&mut self, now: Moment) {
        while self.looks_under_way < WINDOW && !self.looks.is_empty() {
            let mut looks = Vec::new();
            let mut later = Vec::new();
            while looks.len() < bundle::READS {
                let Some(name) = self.looks.pop() else {
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
                let key = queue.own_key(l.id);
                looks.push(Look {
                    name,
                    family: queue.family.clone(),
                    key,
                    created,
                    asks: match queue.slot {
                        Slot::Held { .. } => Asks::Behind,
                        _ if queue.watched_has_gone() => Asks::Turn,
                        _ => Asks::Before,
                    },
                    deep: queue.deep || queue.seat != Seat::Exclusive,
                });
            }
            for name in later {
                self.looks.insert(name);
            }
            if looks.is_empty() {
                return;
            }
            self.looks_under_way += 1;
            self.send(
                now,
                Request::Txn(bundle::look(&looks)),
                Exchange::Look(looks),
            );
        }
    }

    pub(super) fn looked(
        &mut self,
        now: Moment,
        looks: Vec<Look>,
        sent: Moment,
        floor: Revision,
        result: Result<TxnAnswer, Failure>,
    ) {
        self.looks_under_way -= 1;
        let mut leases = BTreeSet::new();
        for look in &looks {
            if let Some(queue) = self.queues.get_mut(&look.name) {
                queue.reading = false;
                leases.extend(queue.slot.lease());
            }
        }
        let answer = match result {
            Ok(answer) if answer.revision >= floor => answer,
            // A lagging member, or a wiped etcd (rules P20, P35): ask again, and find out which. A seal tells, as a write is
            // never stale.
            stale => {
                if stale.is_ok() {
                    let lease = looks
                        .iter()
                        .find_map(|look| self.queues.get(&look.name)?.slot.lease());
                    if let Some(lease) = lease {
                        self.seal(now, lease);
                    }
                }
                let pause = self.pause(self.looks_failed);
                self.looks_failed += 1;
                for look in looks {
                    self.look_again(now, &look.name, pause);
                }
                for lease in leases {
                    match &stale {
                        Ok(_) => self.lets_in(lease),
                        Err(failure) => self.keeps_out(now, lease, sent, failure.cause()),
                    }
                }
                return;
            }
        };
        for lease in leases {
            self.lets_in(lease);
        }
        self.looks_failed = 0;
        let revision = answer.revision;
        for (look, sight) in bundle::sights(looks, answer) {
            self.saw(now, sent, &look, sight, revision);
        }
    }

    pub(super) fn look_again(&mut self, now: Moment, name: &Key, after: Duration) {
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        if !queue.is_watched() {
            return; // what was to be read is over, and the queue may be resting
        }
        let at = now + after;
        queue.reread_at = Some(at);
        self.at(at, Timer::Look(name.clone()));
    }

    /// Where a name stands, at this revision.
    fn saw(&mut self, now: Moment, sent: Moment, look: &Look, sight: Sight, revision: Revision) {
        let name = &look.name;
        // What waits here of our own, or goes, is none of those that must not wait for long.
        let ours = self.own_not_held(name);
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        let Some(lease) = queue.slot.lease() else {
            return;
        };
        let Some(id) = self.leases.get(&lease).map(|l| l.id) else {
            return;
        };
        if queue.slot.created() != Some(look.created) || queue.own_key(id) != look.key {
            return; // it was about an earlier incarnation
        }
        match sight.own {
            Some(kv) if kv.create_revision == look.created => {
                if kv.lease != id {
                    self.repair(now, name, &kv);
                    let pause = self.pause(1);
                    return self.look_again(now, name, pause);
                }
            }
            _ => return self.own_key_gone(now, name, LossCause::Deleted),
        }
        let family = queue.family.clone();
        let contends = |kv: &Kv| queue::contends(&family, &kv.key);
        let first = match look.asks {
            Asks::Behind => sight.others.first(),
            Asks::Before | Asks::Turn => sight.oldest.as_ref(),
        };
        // One key is not enough to see a contender among the deeper keys (rule P2).
        let hidden = !look.deep && first.is_some_and(|kv| !contends(kv));
        let contenders = sight.others.into_iter().filter(contends);
        match &mut queue.slot {
            Slot::Held { seen, run, .. } if look.asks == Asks::Behind && !hidden => {
                *seen = revision;
                let others =
                    contenders.filter(|kv| !ours.iter().any(|own| own.as_bytes() == kv.key));
                let behind = waits_behind(queue.seat.mode(), look.created, others);
                run.looked(now, sent, behind);
            }
            Slot::Queued(queued) if look.asks != Asks::Behind => {
                let mode = queue.seat.mode();
                let excludes = |kv: &Kv| mode.is_excluded_by(Seat::of_key(&kv.key));
                let weighs = |kv: &Kv| excludes(kv) || mode.beside().is_some();
                let contenders: Vec<Kv> = contenders.filter(weighs).collect();
                let first = contenders.iter().find(|kv| excludes(kv));
                let owner = match look.deep {
                    true => first.or(contenders.first()).cloned(),
                    false => sight.oldest,
                };
                let other = |kv: &Kv| mode.mismatch(Seat::of_key(&kv.key));
                let disagrees = contenders
                    .iter()
                    .find_map(|kv| Some((other(kv)?, Some(kv.value.clone().into()))));
                queue.predecessors.read(revision, contenders);
                queued.ready = queued.ready.or(queue.predecessors.let_in(mode));
                if let Some((theirs, holder)) = disagrees {
                    self.refuse_mismatch(now, name, theirs, &holder);
                } else if queued.ready.is_none() && look.asks == Asks::Turn {
                    self.looks.insert(name.clone()); // who it was had given up; and who owns it now is not known
                } else if queued.ready.is_none() && !hidden {
                    let owner: Option<Arc<[u8]>> = owner.map(|kv| kv.value.into());
                    queue.owner = owner.clone();
                    self.refuse_try(now, name, owner);
                }
            }
            _ => {}
        }
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        let is_ready = matches!(queue.slot, Slot::Queued(Queued { ready: Some(_), .. }));
        if is_ready {
            queue.owner = None;
        } else if hidden {
            queue.deep = true;
            self.looks.insert(name.clone());
            return;
        }
        self.advance(now, name);
        let Some(queue) = self.queues.get(name) else {
            return;
        };
        // A held key is looked at for the sake of others; it is not watched before its time (rule P18).
        let watched = match queue.slot {
            Slot::Held { guard_at, .. } => guard_at <= now,
            _ => true,
        };
        if queue.is_watched() && watched {
            self.watch_others(now, name, revision);
            let Some(queue) = self.queues.get_mut(name) else {
                return;
            };
            let waits = matches!(queue.slot, Slot::Queued(Queued { ready: None, .. }));
            let early = early(now, queue).filter(|_| waits);
            queue.reads += u32::from(look.asks != Asks::Turn); // another follows at once
            let held = matches!(queue.slot, Slot::Held { .. });
            let armed = queue.reread_at.is_some_and(|at| at > now);
            let after = match early {
                Some(after) => after,
                None => self.jittered(FLOOR),
            };
            // A key that is handed on is looked at again and again: one timer will do.
            if !(held && armed) {
                self.look_again(now, name, after);
            }
        }
    }
}
