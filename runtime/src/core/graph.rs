//! Who waits for whom inside this process: exact at every moment, but for what is behind a key of readers (rule P38).
//!
//! A waiting call waits for all calls ahead of it in each of its queues and for the holders of each name that exclude it; a
//! holder waits for the calls that its task has begun since. A circle can close only when a call begins to wait: a call that is granted has
//! begun no other yet, and a group that goes to the back of its queues is one whose task holds nothing, so that nobody waits
//! for it any more; or when a look shows that readers cannot join others here ([`shares`](super::shares)). What is over by then, a wait or a lease, is none of it: the core does what is due before it hears a call.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::clock::Moment;
use crate::core::call::{Call, Stage};
use crate::core::mode::Seat;
use crate::core::place;
use crate::core::queue::{Queue, Queued, Slot};
use crate::core::record::{Incarnation, Waits};
use crate::core::request::Key;
use crate::core::{Blocker, CallId, Core, steps};

/// What a walk along the edges came by.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// The calls, and from which other each was reached.
    from: BTreeMap<CallId, CallId>,
    /// The names that were waited for, and how many calls of each queue are in the walk.
    queues: BTreeMap<Key, usize>,
    /// The keys of other processes behind those of readers here, because of which these are waited for.
    provided: BTreeSet<Incarnation>,
}

impl Core {
    /// The calls whose locks the call's task holds, of those that still hold them.
    pub(super) fn outer(&self, call: &Call) -> Vec<CallId> {
        let holds = |of: &&CallId| {
            let outer = self.calls.get(of);
            outer.is_some_and(|outer| outer.stage == Stage::Holding)
        };
        call.outer().iter().filter(holds).copied().collect()
    }

    /// A call of a task that holds nothing, with several names: it may go back to the end of its queues unheard.
    pub(super) fn may_requeue(&self, call: CallId) -> bool {
        self.calls.get(&call).is_some_and(|c| {
            c.stage == Stage::Waiting && c.is_group() && !c.once && self.outer(c).is_empty()
        })
    }

    /// Remembers for the holders that their task waits for one more call.
    pub(super) fn note_inner(&mut self, call: CallId, holds: &[CallId]) {
        for holder in holds {
            let Some(known) = self.calls.get(holder) else {
                continue;
            };
            let waits = |of: &&CallId| self.is_waiting(**of);
            let mut inner: Vec<_> = known.inner().iter().filter(waits).copied().collect();
            inner.push(call);
            if let Some(holder) = self.calls.get_mut(holder) {
                holder.nest.get_or_insert_default().inner = inner;
            }
        }
    }

    pub(super) fn is_waiting(&self, call: CallId) -> bool {
        self.calls
            .get(&call)
            .is_some_and(|c| c.stage == Stage::Waiting)
    }

    /// Walks along the edges from these calls on, until one of `ends` is reached: answers that one.
    ///
    /// That readers are kept out of a key of this process is known only from a look: it counts if that was sent then, or later;
    /// with `None` whenever it was.
    fn walk(
        &self,
        starts: &[CallId],
        ends: &[CallId],
        seen: Option<Moment>,
    ) -> (Walk, Option<CallId>) {
        let mut walk = Walk::default();
        // Of a call that was reached through a queue, what is ahead there is in the walk already.
        let mut next: VecDeque<(CallId, Option<Key>)> = VecDeque::new();
        let waits =
            |call: &CallId| self.is_waiting(*call) && !self.deadlocks.leaving.contains(call);
        for start in starts.iter().filter(|call| waits(call)) {
            walk.from.insert(*start, *start);
            next.push_back((*start, None));
        }
        while let Some((call, via)) = next.pop_front() {
            let Some(c) = self.calls.get(&call) else {
                continue;
            };
            let mut ahead: Vec<(CallId, Option<Key>)> = Vec::new();
            if c.stage == Stage::Holding {
                ahead.extend(
                    c.inner()
                        .iter()
                        .filter(|of| waits(of))
                        .map(|of| (*of, None)),
                );
            } else {
                for place in &*c.names {
                    let name = place::name_of(place);
                    let Some((name, queue)) = self.queues.get_key_value(name) else {
                        continue;
                    };
                    for (_, place) in self
                        .places(name)
                        .filter(|(_, of)| self.waits_for_holders(c, of, seen))
                    {
                        ahead.extend(place.slot.holders().map(|holder| (holder, None)));
                        if !c.mode.is_excluded_by(place.seat) {
                            let behind = place.slot.run().and_then(|(_, run)| run.behind());
                            walk.provided.extend(behind.cloned());
                        }
                    }
                    if via.as_ref() == Some(name) {
                        continue;
                    }
                    let at = queue.calls.iter().position(|of| *of == call).unwrap_or(0);
                    steps::count(at);
                    let known = walk.queues.get(name).copied();
                    let calls = queue.calls.iter().take(at).skip(known.unwrap_or(0));
                    let calls = calls.filter(|of| waits(of));
                    ahead.extend(calls.map(|of| (*of, Some(name.clone()))));
                    walk.queues.insert(name.clone(), at.max(known.unwrap_or(0)));
                }
            }
            steps::count(1 + ahead.len());
            for (of, via) in ahead {
                if walk.from.contains_key(&of) {
                    continue;
                }
                walk.from.insert(of, call);
                if ends.contains(&of) {
                    return (walk, Some(of));
                }
                next.push_back((of, via));
            }
        }
        (walk, None)
    }

    /// The circle that a call of this process closes inside it: whom it waits for, in order, the last of its own task.
    ///
    /// It has to have been one at some moment: where it is one only because readers cannot join, a look that was sent after the last of
    /// its calls came has shown that. If none has yet, one is sent, and the circle is come to again with its answer.
    pub(super) fn circle_here(&mut self, call: CallId) -> Option<Vec<CallId>> {
        let c = self.calls.get(&call)?;
        let outer = self.outer(c);
        if outer.is_empty() {
            return None;
        }
        let mut seen = c.since;
        loop {
            let (walk, end) = self.walk(&[call], &outer, Some(seen));
            let Some(mut at) = end else {
                self.look_for_circle(call, &outer);
                return None;
            };
            let mut path = Vec::new();
            while at != call {
                path.push(at);
                at = *walk.from.get(&at)?;
            }
            path.reverse();
            let came = path.iter().filter_map(|of| self.calls.get(of));
            let last = came.map(|c| c.since).max().unwrap_or(seen);
            if last <= seen {
                return Some(path);
            }
            seen = last;
        }
    }

    /// Looks whether readers still cannot join, if a call is in a circle because of that.
    fn look_for_circle(&mut self, call: CallId, outer: &[CallId]) {
        let (walk, end) = self.walk(&[call], outer, None);
        if end.is_none() {
            return;
        }
        let shut = |queue: &Queue| {
            let run = queue.slot.run();
            queue.seat == Seat::Shared && run.is_some_and(|(_, run)| run.is_contended())
        };
        let places = walk.queues.keys().flat_map(|name| self.places(name));
        let shut: Vec<Key> = places
            .filter(|(_, queue)| shut(queue))
            .map(|(place, _)| place.clone())
            .collect();
        for place in shut {
            self.looks.insert(place);
        }
    }

    /// What these calls depend on: waiting keys of this process.
    pub(super) fn waits_of_calls(&self, calls: &[CallId]) -> Waits {
        let (walk, _) = self.walk(calls, &[], None);
        let keys = walk.queues.keys();
        Waits {
            keys: keys.filter_map(|name| self.waiting_key(name)).collect(),
            provided: walk.provided,
        }
    }

    /// What a holder's task depends on.
    pub(super) fn waits_of(&self, holder: CallId) -> Waits {
        let inner = self.calls.get(&holder).map(|c| c.inner());
        self.waits_of_calls(inner.unwrap_or_default())
    }

    /// The key of a name, if it waits. Not one of a permit: for whom that waits cannot be said.
    pub(super) fn waiting_key(&self, name: &Key) -> Option<Incarnation> {
        self.places(name).find_map(|(_, queue)| {
            let Slot::Queued(Queued { lease, created, .. }) = queue.slot else {
                return None;
            };
            let id = self.leases.get(&lease)?.id;
            let permit = matches!(queue.seat, Seat::Permit { .. });
            (!permit).then(|| (queue.own_key(id), created))
        })
    }

    /// The calls of a circle, as they are told to the one that is refused.
    pub(super) fn blockers_here(&self, path: &[CallId]) -> Vec<Blocker> {
        let blocker = |call: &CallId| {
            let c = self.calls.get(call)?;
            Some(Blocker {
                key: place::name_of(c.names.first()?).into(),
                record: c.record.clone(),
            })
        };
        path.iter().filter_map(blocker).collect()
    }
}
