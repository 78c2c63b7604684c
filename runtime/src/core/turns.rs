//! How a call comes to its turn: its keys are put together, and it is granted when all of them are ready (rule P13).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::core::call::{Bid, Stage};
use crate::core::handovers::Run;
use crate::core::lease::LeaseRef;
use crate::core::mode::{Mode, Seat};
use crate::core::place;
use crate::core::queue::{Queue, Queued, Slot};
use crate::core::request::Key;
use crate::core::shares::{Gate, place_of};
use crate::core::{CallId, Core, Grant, Output, Owned, Timer};

/// How long a lock is held before its key is watched: short sections pay nothing (rule P18).
const GUARD_AFTER: Duration = Duration::from_secs(1);

/// How far the keys of a call at the head of all its queues have come.
#[derive(Debug, Default)]
struct Progress {
    free: usize,
    wanting: usize,
    /// Put, without an answer that tells where it stands.
    moving: usize,
    queued: usize,
    ready: usize,
    /// Held by others beside whom there is room.
    open: usize,
}

impl Core {
    /// Takes the next step for a place, and for the name it is of, if it is ours to take.
    pub(super) fn advance(&mut self, now: Moment, name: &Key) {
        let Some(queue) = self.queues.get(name) else {
            return self.turn(now, name); // it was never come to
        };
        let alone = queue.seat == Seat::Exclusive;
        match queue.slot {
            Slot::Wanting { .. } if !self.fits(queue) => return self.free(now, name),
            Slot::Queued(_) if !self.fits(queue) => {
                let same = alone && queue.others == 0;
                self.delete(name);
                if same {
                    return;
                }
            }
            Slot::Free if !alone => self.retire_queue(now, name),
            _ => {}
        }
        self.turn(now, name);
    }

    /// Takes the next step for the head of a name's queue.
    pub(super) fn turn(&mut self, now: Moment, place: &str) {
        let Some((name, queue)) = self.queues.get_key_value(place::name_of(place)) else {
            return;
        };
        match (&queue.slot, queue.calls.front()) {
            (_, Some(&call)) => self.serve(now, call),
            (Slot::Free, None) => {
                let name = name.clone();
                self.retire_queue(now, &name);
            }
            _ => {}
        }
    }

    /// Takes the next steps for the heads of these names' queues.
    pub(super) fn turn_all(&mut self, now: Moment, places: &[Key]) {
        for place in places {
            self.turn(now, place);
        }
    }

    /// Calls have been granted: it is the turn of those behind them, for whom there may be room too (rule P37).
    pub(super) fn turn_to_next(&mut self, now: Moment) {
        while let Some(name) = self.next.pop_front() {
            self.advance(now, &name);
        }
    }

    /// Takes the next steps for these names.
    pub(super) fn advance_all(&mut self, now: Moment, names: &[Key]) {
        for name in names {
            self.advance(now, name);
        }
    }

    /// Whether the key there is, or will be, is one for the head of the queue: put for this very group, or for a single name
    /// under a lease of the same TTL.
    pub(super) fn fits(&self, queue: &Queue) -> bool {
        let Some(head) = self.head_of(queue) else {
            return false;
        };
        let lease = queue.slot.lease().and_then(|lease| self.leases.get(&lease));
        match (queue.group, self.calls.get(&head), lease) {
            (Some(group), _, _) => group == head,
            (None, Some(call), Some(l)) => {
                !call.is_group() && call.ttl_secs == l.ttl_secs && call.mode == queue.seat.mode()
            }
            _ => false,
        }
    }

    /// The line that a place belongs to.
    pub(super) fn line_of<'a>(&'a self, queue: &'a Queue) -> Option<&'a VecDeque<CallId>> {
        if queue.seat == Seat::Exclusive {
            return Some(&queue.calls);
        }
        let name = queue.family.strip_suffix('/')?;
        Some(&self.queues.get(name)?.calls)
    }

    /// The head of the line that a place belongs to.
    pub(super) fn head_of(&self, queue: &Queue) -> Option<CallId> {
        self.line_of(queue)?.front().copied()
    }

    /// The head of the queue of a place's name.
    pub(super) fn head(&self, place: &str) -> Option<CallId> {
        let queue = self.queues.get(place::name_of(place))?;
        queue.calls.front().copied()
    }

    /// Takes the next step for a call, if it is at the head of all its queues.
    ///
    /// All steps but the first are taken because of what the slots show, in whatever order that came about: a group whose
    /// keys are not all of one put starts again.
    pub(super) fn serve(&mut self, now: Moment, call: CallId) {
        let Some(mode) = self.calls.get(&call).map(|c| c.mode) else {
            return;
        };
        if let Mode::Permits(of) = mode
            && !self.choose_permits(now, call, of)
        {
            return;
        }
        let Some(names) = self.calls.get(&call).map(|c| c.names.clone()) else {
            return;
        };
        let Some(progress) = self.progress(now, call, &names) else {
            return;
        };
        let all = names.len();
        match progress {
            // Their answers decide.
            Progress { moving: 1.., .. } => {}
            Progress { free, .. } if free == all => self.want(now, call, names),
            Progress { wanting, .. } if wanting == all => {}
            Progress { queued, ready, .. } if queued == all => {
                if ready == all {
                    self.grant_if_fresh(now, call, &names);
                }
            }
            Progress { open, .. } if open == all && self.is_one_lease(&names) => {
                self.join(call, &names);
            }
            // Others' keys are on their way out.
            Progress {
                wanting: 0,
                queued: 0,
                ..
            } => self.bide(now, mode, &names),
            // One of its keys went: all go (rule P13).
            _ => {
                for name in &*names {
                    self.take_back(name);
                }
                self.serve(now, call);
            }
        }
    }

    /// How far the keys of a call have come; `None`: others are before it.
    fn progress(&self, now: Moment, call: CallId, names: &[Key]) -> Option<Progress> {
        let mut progress = Progress::default();
        for name in names {
            let queue = self.queues.get(name);
            let head = match queue {
                Some(queue) => self.head_of(queue),
                None => self.head(name),
            };
            if head != Some(call) {
                return None;
            }
            let Some(queue) = queue else {
                progress.free += usize::from(!self.is_in_line(name));
                continue;
            };
            match &queue.slot {
                // At most one key of a name waits.
                Slot::Free => progress.free += usize::from(!self.is_in_line(name)),
                Slot::Held { .. } if self.gate(now, queue) == Gate::Open => progress.open += 1,
                _ if !self.fits(queue) => {}
                Slot::Wanting { .. } => progress.wanting += 1,
                Slot::Putting { .. } | Slot::Doubt { .. } => progress.moving += 1,
                Slot::Queued(queued) => {
                    progress.queued += 1;
                    progress.ready += usize::from(queued.ready.is_some());
                }
                Slot::Held { .. } | Slot::Retained | Slot::Deleting { .. } => {}
            }
        }
        Some(progress)
    }

    /// Queues the names of a call to be put together.
    fn want(&mut self, now: Moment, call: CallId, names: Arc<[Key]>) {
        let Some((ttl_secs, group)) = self
            .calls
            .get(&call)
            .map(|c| (c.ttl_secs, c.is_group().then_some(call)))
        else {
            return;
        };
        let lease = self.lease_for(now, ttl_secs);
        let Some(l) = self.leases.get_mut(&lease) else {
            return;
        };
        for name in &*names {
            let queue = place_of(&mut self.queues, name);
            queue.slot = Slot::Wanting { lease };
            queue.group = group;
        }
        l.pending.push_back(Bid { names, group });
    }

    /// Gives up a key that waits, or was to be put.
    pub(super) fn take_back(&mut self, name: &Key) {
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        match queue.slot {
            Slot::Wanting { .. } => queue.slot = Slot::Free,
            Slot::Queued(_) => self.delete(name),
            _ => {}
        }
    }

    pub(super) fn free(&mut self, now: Moment, name: &Key) {
        if let Some(queue) = self.queues.get_mut(name) {
            queue.slot = Slot::Free;
        }
        self.advance(now, name);
    }

    /// It is the call's turn: grants it, or renews its lease first (rule P12).
    fn grant_if_fresh(&mut self, now: Moment, call: CallId, names: &[Key]) {
        let lease = names
            .first()
            .and_then(|name| self.queues.get(name)?.slot.lease());
        let Some((lease, l)) = lease.and_then(|lease| Some((lease, self.leases.get_mut(&lease)?)))
        else {
            return;
        };
        if l.is_fresh(now) {
            self.grant(now, call, lease);
        } else {
            l.unfresh.extend(names.first().cloned());
            self.renew(now, lease);
        }
    }

    /// The call has its locks.
    fn grant(&mut self, now: Moment, call: CallId, lease: LeaseRef) {
        let (Some(granted), Some(l)) = (self.calls.get_mut(&call), self.leases.get_mut(&lease))
        else {
            return;
        };
        granted.stage = Stage::Holding;
        self.waiters -= usize::from(!granted.once);
        l.bodies += 1;
        if let Some(until) = granted.until {
            self.timers.remove(&(until, Timer::Wait(call)));
        }
        let guard_at = now + GUARD_AFTER;
        let mut owned = Vec::with_capacity(granted.names.len());
        for name in &*granted.names {
            let Some(queue) = self.queues.get_mut(name) else {
                continue;
            };
            let Slot::Queued(Queued {
                created,
                ready: Some(ready),
                ..
            }) = queue.slot
            else {
                continue;
            };
            let revision = ready.max(created);
            owned.push(Owned {
                key: queue.own_key(l.id),
                created,
                revision,
                handover: 0,
            });
            queue.slot = Slot::Held {
                lease,
                created,
                call,
                beside: Vec::new(),
                seen: ready,
                guard_at,
                lost: false,
                // Granted by the answer to the put: that shows who was behind as well, nobody.
                run: Run::begin(now, revision, ready == created && queue.heard == Some(now)),
            };
            queue.owner = None;
            queue.reread_at = None;
            self.timers.insert((guard_at, Timer::Guard(name.clone())));
        }
        let names = granted.names.clone();
        let deadline = l.deadline.clone();
        self.leave_line(call, &names);
        self.outputs.push_back(Output::Granted(Grant {
            call,
            owned,
            deadline,
        }));
    }
}
