//! How calls have a name together: readers by one key, holders of permits by one each (rule P37).
//!
//! Invariants:
//! - At most one key of a name waits. Which call it is for is decided by the one line in which calls of all modes stand.
//! - Readers join the key that others here hold only from the head of that line, and only as long as nobody who is kept
//!   waiting by it is known to stand behind it, by a look that is no older than [`OPEN`]. So later readers overtake nobody for
//!   longer than that, here or in another process; and a key that nobody joins any more comes to its end.
//! - A key goes when the last who holds it has gone.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::core::call::{Call, Stage};
use crate::core::lease::{LeaseRef, State};
use crate::core::mode::{Mode, Seat};
use crate::core::place;
use crate::core::queue::{Queue, Slot};
use crate::core::request::Key;
use crate::core::{CallId, Core, Grant, Output, Owned, Refused, Timer};

/// How long a look that showed nobody behind a key lets readers join it.
const OPEN: Duration = Duration::from_millis(50);

/// How long a reader waits for a key to go that has somebody behind it, before it is looked whether he is still there.
const SHUT: Duration = Duration::from_secs(1);

/// Whether readers may join a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gate {
    Open,
    /// It is to be seen first whether somebody stands behind it.
    Unseen,
    /// Its lease is to be renewed first (rule P12).
    Unfresh,
    /// Somebody does.
    Contended,
    /// It is not to be relied on any more: it goes with those who have it.
    Closed,
}

/// A place of a name, which may not have been come to yet.
pub(super) fn place_of<'a>(queues: &'a mut BTreeMap<Key, Queue>, place: &Key) -> &'a mut Queue {
    if !queues.contains_key(place)
        && let Some(name) = queues.get_mut(place::name_of(place))
    {
        name.others += 1;
    }
    let queue = queues.entry(place.clone());
    queue.or_insert_with(|| Queue::new(place))
}

impl Core {
    /// All places of a name that there are, the exclusive one first.
    pub(super) fn places<'a>(
        &'a self,
        place: &'a str,
    ) -> impl Iterator<Item = (&'a Key, &'a Queue)> {
        let name = place::name_of(place);
        let places = self
            .queues
            .range::<str, _>((std::ops::Bound::Included(name), std::ops::Bound::Unbounded));
        let others = self.queues.get(name).map_or(0, |queue| queue.others);
        places.take(others + 1)
    }

    /// Whether a key of the name waits, in any of its places.
    pub(super) fn is_in_line(&self, place: &str) -> bool {
        self.places(place).any(|(_, queue)| queue.is_in_line())
    }

    /// The key of this process that waits for a name, if another of its keys is held there.
    pub(super) fn waiting_here(&self, place: &str) -> Option<Key> {
        let shares = self.queues.get(place::name_of(place))?.others > 0;
        let waits = |queue: &Queue| matches!(queue.slot, Slot::Queued(_));
        let (_, queue) = self
            .places(place)
            .find(|(_, queue)| shares && waits(queue))?;
        Some(queue.own_key(self.leases.get(&queue.slot.lease()?)?.id))
    }

    /// A call leaves the line because it has what it wanted; whoever is next may find room beside it.
    pub(super) fn leave_line(&mut self, call: CallId, names: &[Key]) {
        let mode = self.calls.get(&call).map(|c| c.mode);
        for place in names {
            let Some(queue) = self.queues.get_mut(place::name_of(place)) else {
                continue;
            };
            queue.remove(call);
            let next = queue.calls.front().and_then(|next| self.calls.get(next));
            let alone = |mode: Mode| mode == Mode::Exclusive;
            if next.is_some_and(|next| !(alone(next.mode) && mode.is_some_and(alone))) {
                self.next.push_back(place.clone());
            }
        }
    }

    /// Whether readers may join this key.
    pub(super) fn gate(&self, now: Moment, queue: &Queue) -> Gate {
        let Slot::Held {
            lease,
            lost: false,
            run,
            ..
        } = &queue.slot
        else {
            return Gate::Closed;
        };
        let Some(l) = self.leases.get(lease).filter(|_| self.takes_more(queue)) else {
            return Gate::Closed;
        };
        if l.deadline.is_over(now) {
            return Gate::Closed;
        }
        let seen = run.alone.is_some_and(|at| now - at <= OPEN);
        match () {
            () if run.contended => Gate::Contended,
            () if !l.is_fresh(now) => Gate::Unfresh,
            () if seen => Gate::Open,
            () => Gate::Unseen,
        }
    }

    /// Whether others may have this key with those that do, if nobody is kept waiting by that.
    fn takes_more(&self, queue: &Queue) -> bool {
        let Slot::Held {
            lease,
            lost: false,
            run,
            ..
        } = &queue.slot
        else {
            return false;
        };
        let l = self.leases.get(lease);
        let usable = l.is_some_and(|l| matches!(l.state, State::Open | State::Sealing));
        queue.seat == Seat::Shared && !queue.suspected && usable && run.handover < u16::MAX
    }

    /// Whether a call waits for those who hold this place to go (rule P38). Of permits that cannot be said: any will do.
    pub(super) fn waits_for_holders(&self, call: &Call, queue: &Queue) -> bool {
        let Slot::Held { lost: false, .. } = queue.slot else {
            return false;
        };
        if call.mode.is_excluded_by(queue.seat) {
            return true;
        }
        let open = |queue: &Queue| {
            let contended = matches!(&queue.slot, Slot::Held { run, .. } if run.contended);
            self.takes_more(queue) && !contended
        };
        let all_open = || {
            let mut places = call.names.iter().map(|name| self.queues.get(name));
            places.all(|queue| queue.is_some_and(open)) && self.is_one_lease(&call.names)
        };
        let mut places = call.names.iter().filter_map(|name| self.queues.get(name));
        call.mode == Mode::Shared && places.any(|of| std::ptr::eq(of, queue)) && !all_open()
    }

    /// Whether all these keys hang on one lease: a call has one deadline.
    pub(super) fn is_one_lease(&self, names: &[Key]) -> bool {
        let mut leases = names.iter().map(|name| self.queues.get(name)?.slot.lease());
        let first = leases.next().flatten();
        first.is_some() && leases.all(|lease| lease == first)
    }

    /// The call has its locks, beside others.
    pub(super) fn join(&mut self, call: CallId, names: &[Key]) {
        let Some(joining) = self.calls.get_mut(&call) else {
            return;
        };
        joining.stage = Stage::Holding;
        self.waiters -= usize::from(!joining.once);
        if let Some(until) = joining.until {
            self.timers.remove(&(until, Timer::Wait(call)));
        }
        let mut owned = Vec::with_capacity(names.len());
        let mut under = None;
        for name in names {
            let Some(queue) = self.queues.get_mut(name) else {
                continue;
            };
            let Some(l) = queue.slot.lease().and_then(|lease| self.leases.get(&lease)) else {
                continue;
            };
            let key = queue.own_key(l.id);
            let Slot::Held {
                lease,
                created,
                beside,
                run,
                ..
            } = &mut queue.slot
            else {
                continue;
            };
            beside.push(call);
            run.handover += 1;
            under = Some(*lease);
            owned.push(Owned {
                key,
                created: *created,
                revision: run.revision,
                handover: run.handover,
            });
        }
        self.leave_line(call, names);
        let Some(l) = under.and_then(|lease| self.leases.get_mut(&lease)) else {
            return;
        };
        l.bodies += 1;
        let deadline = l.deadline.clone();
        self.outputs.push_back(Output::Granted(Grant {
            call,
            owned,
            deadline,
        }));
    }

    /// A call is gone that others hold a key with: it stays with them. Answers its lease; `None`: nobody else has it.
    pub(super) fn leave_beside(&mut self, name: &Key, call: CallId) -> Option<LeaseRef> {
        let queue = self.queues.get_mut(name)?;
        let Slot::Held {
            lease,
            call: first,
            beside,
            ..
        } = &mut queue.slot
        else {
            return None;
        };
        let lease = *lease;
        if *first == call {
            *first = beside.pop()?;
            let record = self.calls.get(first).map(|c| c.record.clone());
            queue.record = record.or(queue.record.take());
        } else {
            let at = beside.iter().position(|of| *of == call)?;
            beside.swap_remove(at);
        }
        Some(lease)
    }

    /// The places of a call are taken by others of this process: what it can do but wait.
    pub(super) fn bide(&mut self, now: Moment, mode: Mode, names: &[Key]) {
        if mode == Mode::Exclusive {
            return;
        }
        let mut asks = false;
        for name in names {
            let Some(queue) = self.queues.get(name) else {
                continue;
            };
            let lease = queue.slot.lease();
            match self.gate(now, queue) {
                Gate::Unseen => {
                    self.looks.insert(name.clone());
                    asks = true;
                }
                Gate::Unfresh => {
                    if let Some(lease) = lease {
                        if let Some(l) = self.leases.get_mut(&lease) {
                            l.unfresh.push(name.clone());
                        }
                        self.renew(now, lease);
                    }
                    asks = true;
                }
                Gate::Contended => {
                    let due = queue.reread_at.filter(|at| *at > now);
                    if due.is_none_or(|at| at > now + SHUT) {
                        self.look_again(now, name, SHUT);
                    }
                }
                Gate::Open | Gate::Closed => {}
            }
        }
        if !asks {
            self.refuse_tries(now, names);
        }
        // Only now does it wait for those who have the key: that may be a circle (rule P38).
        if !asks && mode == Mode::Shared {
            self.close_circles(now, names);
        }
    }

    /// Calls of these lines have come to wait for others than they did.
    fn close_circles(&mut self, now: Moment, names: &[Key]) {
        let lines = names
            .iter()
            .filter_map(|name| self.queues.get(place::name_of(name)));
        let nested = |call: &CallId| self.calls.get(call).is_some_and(|c| !c.outer().is_empty());
        let calls: Vec<CallId> = lines
            .flat_map(|queue| &queue.calls)
            .copied()
            .filter(nested)
            .collect();
        for call in calls {
            if self.is_waiting(call) {
                self.closes_circle(now, call);
            }
        }
    }

    /// Others have another number of permits of a name: all at the head of the line that agree with us are told.
    pub(super) fn refuse_mismatch(
        &mut self,
        now: Moment,
        place: &Key,
        theirs: NonZeroU16,
        holder: &Option<Arc<[u8]>>,
    ) {
        let mode = place::seat_of(place).mode();
        let Some(line) = self.queues.get(place::name_of(place)) else {
            return;
        };
        let calls = line.calls.iter().map(|call| (*call, self.calls.get(call)));
        let calls = calls
            .map_while(|(call, c)| Some((call, c.filter(|c| c.mode == mode)?.position(place))));
        for (call, name) in calls.collect::<Vec<_>>() {
            let why = Refused::Mismatch {
                name,
                theirs,
                holder: holder.clone(),
            };
            self.reject(now, vec![call], &why);
        }
    }

    /// Single tries would have to wait for others of this process.
    fn refuse_tries(&mut self, now: Moment, names: &[Key]) {
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

    /// Who has a name, as far as this process knows: a record to show to a call that is refused.
    pub(super) fn holder_here(&self, place: &str) -> Option<Arc<[u8]>> {
        self.places(place).find_map(|(_, queue)| queue.holder())
    }

    /// Finds permits for a call: the keys that wait for it, or for whoever is the head of the line, or that may be put. False:
    /// all are taken here, or another number of them.
    pub(super) fn choose_permits(&mut self, now: Moment, call: CallId, of: NonZeroU16) -> bool {
        let Some(c) = self.calls.get(&call) else {
            return false;
        };
        if c.names.iter().any(|name| self.head(name) != Some(call)) {
            return false;
        }
        let mode = Mode::Permits(of);
        let mut chosen = Vec::with_capacity(c.names.len());
        let mut other = None;
        for (at, name) in c.names.iter().enumerate() {
            let name = place::name_of(name);
            let waits = |queue: &Queue| queue.is_in_line() && self.fits(queue);
            let held = |queue: &Queue| matches!(queue.slot, Slot::Held { .. });
            let mut disagrees = self.places(name).filter(|(_, queue)| held(queue));
            let disagrees = disagrees.find_map(|(_, queue)| {
                Some((at, mode.mismatch(queue.seat)?, queue.record.clone()))
            });
            if disagrees.is_some() {
                other = disagrees;
                break;
            }
            let waiting = self.places(name).find(|(_, queue)| waits(queue));
            let taken = self.places(name).filter_map(|(_, queue)| match queue.seat {
                Seat::Permit { index, .. } if !matches!(queue.slot, Slot::Free) => Some(index),
                _ => None,
            });
            let taken: BTreeSet<u16> = taken.collect();
            let free = || (0..of.get()).find(|index| !taken.contains(index));
            let place = waiting
                .map(|(place, _)| place.clone())
                .or_else(|| free().map(|index| place::permit(name, of, index)));
            chosen.extend(place);
        }
        if let Some((name, theirs, holder)) = other {
            let why = Refused::Mismatch {
                name,
                theirs,
                holder,
            };
            self.reject(now, vec![call], &why);
            return false;
        }
        if chosen.len() < c.names.len() {
            let name = c.names.first().map(|name| place::name_of(name));
            let taken = name.map(|name| place::permit(name, of, 0));
            self.refuse_tries(now, taken.as_slice());
            return false;
        }
        if let Some(c) = self.calls.get_mut(&call) {
            c.names = chosen.into();
        }
        true
    }
}
