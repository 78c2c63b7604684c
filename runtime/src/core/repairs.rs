//! What becomes of a key of ours that a stranger has touched.

use crate::clock::Moment;
use crate::core::bundle;
use crate::core::mode::Seat;
use crate::core::queue::Slot;
use crate::core::request::{Failure, Key, Kv, Request, Revision, TxnAnswer};
use crate::core::{Core, Exchange};
use crate::error::LossCause;

impl Core {
    /// Somebody put our key under another lease: it would outlive us. Attaches it again, if nobody touched it since.
    pub(super) fn repair(&mut self, now: Moment, name: &Key, kv: &Kv) {
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        // Watch and read tell of the same put, and late: a second repair would find the first one's put and take it for
        // another stranger's.
        if kv.mod_revision <= queue.repaired {
            return;
        }
        queue.repaired = kv.mod_revision;
        queue.suspected = true;
        let (Some(lease), Some(created)) = (queue.slot.lease(), queue.slot.created()) else {
            return;
        };
        let Some(l) = self.leases.get(&lease) else {
            return;
        };
        let record = queue.record.clone().unwrap_or_else(|| [].into());
        let key = queue.own_key(l.id);
        let request = Request::Txn(bundle::repair(key, created, kv.mod_revision, l.id, record));
        let name = name.clone();
        self.send(now, request, Exchange::Repair { name, created });
    }

    pub(super) fn repaired(
        &mut self,
        now: Moment,
        name: &Key,
        created: Revision,
        result: Result<TxnAnswer, Failure>,
    ) {
        let slot = self.queues.get(name).map(|queue| &queue.slot);
        if slot.and_then(Slot::created) != Some(created) {
            return; // it was about an earlier incarnation
        }
        match result {
            Ok(answer) if !answer.succeeded => {
                self.own_key_gone(now, name, LossCause::Overwritten);
            }
            Err(Failure::Refused { .. }) => self.own_key_gone(now, name, LossCause::Overwritten),
            // A waiter looked and got no further: it looks again. And what was put is the record alone, which tells of no wait.
            Ok(_) => {
                let holders: Vec<_> = slot.into_iter().flat_map(Slot::holders).collect();
                self.looks.insert(name.clone());
                for holder in holders {
                    self.publish_again(now, holder);
                }
            }
            Err(_) => {
                if let Some(queue) = self.queues.get_mut(name) {
                    queue.repaired = 0;
                }
                self.looks.insert(name.clone());
            }
        }
    }

    /// Our key is gone, or not ours any more.
    pub(super) fn own_key_gone(&mut self, now: Moment, name: &Key, cause: LossCause) {
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        let lease = queue.slot.lease();
        match &mut queue.slot {
            held @ Slot::Held { .. } => {
                let holders: Vec<_> = held.holders().collect();
                held.lose();
                if queue.seat != Seat::Exclusive {
                    self.next.push_back(name.clone()); // who wanted to join learns that this is over
                }
                for call in holders {
                    self.lose_call(call, cause);
                }
            }
            // Overwritten, it is still there and in the way: out with it before the queue goes on.
            Slot::Queued(_) if cause == LossCause::Overwritten => {
                self.delete(name);
                self.advance(now, name); // a group's others go with it
            }
            Slot::Queued(_) => self.free(now, name),
            _ => return,
        }
        // Perhaps the whole lease is gone: the sooner we know, the sooner the others go on.
        if let Some(lease) = lease {
            self.renew(now, lease);
        }
    }
}
