//! How a process learns where its keys stand: by reads and by watches (rules P14 to P20).

use std::time::Duration;

use crate::clock::Moment;
use crate::core::bundle::{self, Look, Sight};
use crate::core::queue::{Queued, Slot};
use crate::core::request::{Event, Failure, Key, Kv, Request, Revision, TxnAnswer, WatchNews};
use crate::core::{Core, Exchange, Output, Timer, WINDOW, WatchId};
use crate::error::LossCause;

/// When a fresh watch is read beside: etcd may serve it 100 ms late (rule P15).
const EARLY: [Duration; 4] = [
    Duration::from_millis(5),
    Duration::from_millis(15),
    Duration::from_millis(30),
    Duration::from_millis(60),
];

/// How often a waiter reads the family even if its watch is silent (rule P17).
const FLOOR: Duration = Duration::from_secs(5);

impl Core {
    /// Watches and reads the family of a name that is queued behind others.
    pub(super) fn wait_for_turn(&mut self, name: &Key, revision: Revision) {
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
    pub(super) fn guard(&mut self, now: Moment, name: &Key) {
        let Some(queue) = self.queues.get(name) else {
            return;
        };
        if let Slot::Held {
            seen, lost: false, ..
        } = queue.slot
        {
            self.open_watch(name, seen);
            let floor = self.jittered(FLOOR);
            self.look_again(now, name, floor);
        }
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
                    held: matches!(queue.slot, Slot::Held { .. }),
                });
            }
            self.looks.extend(later);
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
                return;
            }
        };
        self.looks_failed = 0;
        let revision = answer.revision;
        for (look, sight) in looks.into_iter().zip(bundle::sights(answer)) {
            self.saw(now, &look, sight, revision);
        }
    }

    fn look_again(&mut self, now: Moment, name: &Key, after: Duration) {
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
                    self.repair(now, name, &kv);
                    let pause = self.pause(1);
                    return self.look_again(now, name, pause);
                }
            }
            _ => return self.own_key_gone(now, name, LossCause::Deleted),
        }
        let (contenders, others): (Vec<Kv>, Vec<Kv>) = sight
            .oldest
            .into_iter()
            .partition(|kv| queue.contends(&kv.key));
        let neighbour = sight.neighbour.as_ref();
        // One key is not enough to see the contenders among the deeper keys (rule P2).
        if !look.whole
            && (!others.is_empty() || neighbour.is_some_and(|kv| !queue.contends(&kv.key)))
        {
            queue.deep = true;
            self.looks.insert(name.clone());
            return;
        }
        if let Slot::Held { seen, run, .. } = &mut queue.slot
            && look.held
        {
            *seen = revision;
            let newest = match look.whole {
                true => contenders.last(),
                false => neighbour,
            };
            run.looked(
                now,
                newest.is_some_and(|kv| kv.create_revision > look.created),
            );
        }
        if let Slot::Queued(queued) = &mut queue.slot {
            queued.seen = revision;
            let older = |kv: &&Kv| kv.create_revision < look.created;
            match contenders.first().filter(older) {
                None => {
                    queued.ready.get_or_insert(revision);
                    queue.owner = None;
                }
                Some(owner) => {
                    let predecessor = match look.whole {
                        true => contenders.iter().rfind(older),
                        false => neighbour,
                    };
                    queued.predecessor = predecessor.map(|kv| (kv.key.clone(), kv.create_revision));
                    queue.owner = Some(owner.value.as_slice().into());
                }
            }
            if queued.ready.is_none() {
                let holder = queue.owner.clone();
                self.refuse_try(now, name, holder);
            }
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
            self.open_watch(name, revision);
            let Some(queue) = self.queues.get_mut(name) else {
                return;
            };
            let waits = matches!(queue.slot, Slot::Queued(Queued { ready: None, .. }));
            let early = EARLY.get(queue.reads as usize).copied().filter(|_| waits);
            queue.reads += 1;
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
                    // While a read is under way the predecessor it will show may be going already.
                    let expected = queue.reading
                        || predecessor
                            .as_ref()
                            .is_none_or(|(pred, born)| *pred == key && revision > *born);
                    if expected && revision > *seen {
                        self.looks.insert(name);
                    }
                }
            }
            // Whoever comes after us waits for us (rule P23).
            Event::Put(kv) if queue.contends(&kv.key) && kv.create_revision > created => {
                if let Slot::Held { run, .. } = &mut queue.slot {
                    run.contended = true;
                }
            }
            Event::Put(_) | Event::Delete { .. } => {}
        }
    }
}
