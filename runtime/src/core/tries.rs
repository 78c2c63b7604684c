//! A single try: its keys are put only if nothing is below any of its names, and it does not wait (rule P11).

use std::sync::Arc;

use crate::clock::Moment;
use crate::core::bundle;
use crate::core::call::Bid;
use crate::core::lease::LeaseRef;
use crate::core::mode::Mode;
use crate::core::place;
use crate::core::queue::Slot;
use crate::core::request::{Failure, Key, Kv, TxnAnswer};
use crate::core::{CallId, Core, Refused, steps};

impl Core {
    /// One try was answered, or not (rule P11).
    pub(super) fn tried(
        &mut self,
        now: Moment,
        sent: Moment,
        lease: LeaseRef,
        bid: Bid,
        call: CallId,
        result: Result<TxnAnswer, Failure>,
    ) {
        if let Some(l) = self.leases.get_mut(&lease) {
            l.in_flight -= 1;
        }
        let answer = match result {
            Ok(answer) => answer,
            Err(failure) => return self.unanswered(now, sent, lease, vec![bid], failure),
        };
        self.reached(lease);
        if answer.succeeded {
            for name in &*bid.names {
                self.placed_ready(now, lease, name, answer.revision, answer.revision);
            }
            return;
        }
        let Some(l) = self.leases.get(&lease) else {
            return;
        };
        let mut answers = answer.answers.iter().cloned();
        let session = answers.next().and_then(bundle::first);
        let same = session.is_some_and(|kv| kv.mod_revision == l.session_revision);
        let oldest: Vec<Option<Kv>> = answers.map(bundle::first).collect();
        self.unput(now, lease, vec![bid.clone()]);
        if !same {
            return self.session_moved(now, lease, answer);
        }
        let held = bid.names.iter().zip(oldest).enumerate();
        let held = held.filter_map(|(name, (key, kv))| Some((name, self.queues.get(key)?, kv?)));
        let mut held = held.filter(|(_, queue, kv)| queue.contends(&kv.key));
        if let Some((name, _, kv)) = held.next() {
            let holder = Some(kv.value.into());
            return self.reject(now, vec![call], &Refused::Held { name, holder });
        }
        // Only deeper keys, as far as one key tells; or it has just gone.
        if let Some(call) = self.calls.get_mut(&call) {
            call.put_once = true;
        }
    }

    /// A single try is not granted at once: it is refused (rule P11), and with it those in line behind it, or behind who waits,
    /// for the same.
    pub(super) fn refuse_try(&mut self, now: Moment, name: &Key, holder: Option<Arc<[u8]>>) {
        let mode = place::seat_of(name).mode();
        let Some(line) = self.queues.get(place::name_of(name)) else {
            return;
        };
        let calls = line.calls.iter().map(|call| (*call, self.calls.get(call)));
        // What was put for one mode tells nothing about another.
        let same = calls.map_while(|(call, c)| Some((call, c.filter(|c| c.mode == mode)?)));
        let many = match mode {
            Mode::Exclusive => 1,
            Mode::Shared | Mode::Permits(_) => usize::MAX,
        };
        let tries = same.take(many).filter(|(_, c)| c.once);
        let tries: Vec<_> = tries.map(|(call, c)| (call, c.position(name))).collect();
        steps::count(tries.len());
        for (call, name) in tries {
            let holder = holder.clone();
            self.reject(now, vec![call], &Refused::Held { name, holder });
        }
    }

    /// Single tries would have to wait for others of this process.
    pub(super) fn refuse_tries(&mut self, now: Moment, names: &[Key]) {
        let taken = |name: &&Key| {
            let mut places = self.places(name);
            places.any(|(_, queue)| !matches!(queue.slot, Slot::Free))
        };
        let taken = names.iter().find(taken).or(names.first());
        if let Some(place) = taken {
            let holder = self.holder_here(place);
            self.refuse_try(now, place, holder);
        }
    }
}
