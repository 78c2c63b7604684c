//! How calls have a name together: readers by one key, holders of permits by one each (rule P37).
//!
//! Invariants:
//! - At most one key of a name waits. Which call it is for is decided by the one line in which calls of all modes stand.
//! - Readers join the key that others here hold only from the head of that line, and only as long as nobody who is kept
//!   waiting by it is known to stand behind it, by a look that is no older than [`OPEN`]. So later readers overtake nobody for
//!   longer than that, here or in another process; and a key that nobody joins any more comes to its end. Nor is anybody kept
//!   out by what was seen longer ago: who stood behind it may have gone.
//! - A key goes when the last who holds it has gone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::core::call::{Call, Stage};
use crate::core::handovers::Run;
use crate::core::lease::{Lease, LeaseRef, State};
use crate::core::mode::{Mode, Seat};
use crate::core::place;
use crate::core::queue::{Queue, Slot};
use crate::core::request::Key;
use crate::core::{CallId, Core, Grant, Output, Owned, Timer, steps};

/// How long it is relied on what a look showed behind a key: nobody, and readers join it; or somebody, and they do not.
pub(super) const OPEN: Duration = Duration::from_millis(50);

/// How long a reader waits at most, for a key to go that has somebody behind it, before it is looked whether he is still there.
const SHUT: Duration = Duration::from_millis(250);

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
        places.take(others + 1).inspect(|_| steps::count(1))
    }

    /// Whether a key of the name waits, in any of its places.
    pub(super) fn is_in_line(&self, place: &str) -> bool {
        self.places(place).any(|(_, queue)| queue.is_in_line())
    }

    /// The keys of this process below a name it shares, but those that are held: they wait, or come, or go.
    pub(super) fn own_not_held(&self, place: &str) -> Vec<Key> {
        let shares = |queue: &Queue| queue.others > 0;
        if !self.queues.get(place::name_of(place)).is_some_and(shares) {
            return Vec::new();
        }
        let places = self.places(place).map(|(_, queue)| queue);
        let others = places.filter(|queue| !matches!(queue.slot, Slot::Held { .. }));
        let key = |queue: &Queue| Some(queue.own_key(self.leases.get(&queue.slot.lease()?)?.id));
        others.filter_map(key).collect()
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
        let Some((l, run)) = self.joined(queue).filter(|(l, _)| !l.deadline.is_over(now)) else {
            return Gate::Closed;
        };
        let seen = run.was_seen(now - OPEN);
        match () {
            () if seen && run.is_contended() => Gate::Contended,
            () if !l.is_fresh(now) => Gate::Unfresh,
            () if seen => Gate::Open,
            () => Gate::Unseen,
        }
    }

    /// The lease and the run of a key that others may have with those that do, if nobody is kept waiting by that.
    pub(crate) fn joined<'a>(&'a self, queue: &'a Queue) -> Option<(&'a Lease, &'a Run)> {
        let (lease, run) = queue.slot.run()?;
        let l = self.leases.get(&lease)?;
        let usable = matches!(l.state, State::Open | State::Sealing) && !queue.suspected;
        (queue.seat == Seat::Shared && usable && run.handover < u16::MAX).then_some((l, run))
    }

    /// Whether a call waits for those who hold this place to go (rule P38). Of permits that cannot be said: any will do. Readers
    /// do as somebody is behind the key: if a look that was sent then, or later, has shown that; `None`: whenever it was seen last.
    pub(super) fn waits_for_holders(
        &self,
        call: &Call,
        queue: &Queue,
        seen: Option<Moment>,
    ) -> bool {
        let Slot::Held { lost: false, .. } = queue.slot else {
            return false;
        };
        if call.mode.is_excluded_by(queue.seat) {
            return true;
        }
        let shut = |run: &Run| match seen {
            Some(then) => run.was_contended(then),
            None => run.is_contended(),
        };
        let open = |queue: &Queue| self.joined(queue).is_some_and(|(_, run)| !shut(run));
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
            let lease = queue.slot.lease();
            let Some(l) = lease.and_then(|lease| self.leases.get_mut(&lease)) else {
                continue;
            };
            l.joining.remove(name);
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
            let gate = self.gate(now, queue);
            let Some((lease, run)) = queue.slot.run() else {
                continue;
            };
            let contended_for = run.contended_for(now);
            let due = queue.reread_at.filter(|at| *at > now);
            // What failed is tried again after its pause, whoever comes in between.
            let looks_later = self.looks_failed > 0 && due.is_some();
            let renews_later = |l: &Lease| l.failures > 0 && l.renew_at > now;
            let renews_later = self.leases.get(&lease).is_some_and(renews_later);
            if let Some(l) = self.leases.get_mut(&lease) {
                match gate {
                    Gate::Unseen => drop(l.joining.insert(name.clone())),
                    Gate::Unfresh => {
                        l.joining.insert(name.clone());
                        l.unfresh.insert(name.clone());
                    }
                    _ => drop(l.joining.remove(name)),
                }
            }
            asks |= matches!(gate, Gate::Unseen | Gate::Unfresh);
            match gate {
                Gate::Unseen if !looks_later => self.looks.insert(name.clone()),
                Gate::Unfresh if !renews_later => self.renew(now, lease),
                Gate::Contended => {
                    // The longer somebody has been there, the longer he may be there yet.
                    let rest = contended_for.map_or(OPEN, |time| (time / 2).clamp(OPEN, SHUT));
                    if due.is_none_or(|at| at > now + rest) {
                        self.look_again(now, name, rest);
                    }
                }
                _ => {}
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

    /// Calls of these lines have come to wait for whoever has the keys, for whom they did not wait before. If that is a circle, it
    /// goes on with a call that one of these has made, wherever that waits.
    fn close_circles(&mut self, now: Moment, names: &[Key]) {
        let queue = |name: &Key| self.queues.get(name);
        let line = |name: &Key| self.queues.get(place::name_of(name));
        let lines = names.iter().filter_map(line).flat_map(|queue| &queue.calls);
        let nested = |call: &CallId| self.calls.get(call).is_some_and(|c| !c.outer().is_empty());
        let holders = names.iter().filter_map(queue);
        let holders = holders.flat_map(|queue| queue.slot.holders());
        let made = holders.filter_map(|holder| self.calls.get(&holder));
        let made = made.flat_map(|c| c.inner());
        let calls: Vec<CallId> = lines.copied().filter(nested).chain(made.copied()).collect();
        for call in calls {
            if self.is_waiting(call) {
                self.closes_circle(now, call);
            }
        }
    }

    /// Who has a name, as far as this process knows: a record to show to a call that is refused.
    pub(super) fn holder_here(&self, place: &str) -> Option<Arc<[u8]>> {
        self.places(place).find_map(|(_, queue)| queue.holder())
    }
}
