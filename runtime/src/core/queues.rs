//! The names of a process: how calls come into their queues and go out of them.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::core::call::{Call, Nest, Stage};
use crate::core::mode::{Mode, Seat};
use crate::core::place;
use crate::core::queue::{Queue, Queued, Slot, Watched};
use crate::core::request::{Cause, Key};
use crate::core::shares::Gate;
use crate::core::{Acquire, CallId, Core, Output, Refused, Timer, steps};
use crate::error::LossCause;
use crate::site::Wait;

/// How long a watch stays open after the name was last wanted (rule P15).
const WARM: Duration = Duration::from_secs(5);

impl Core {
    pub(super) fn acquire(&mut self, now: Moment, acquire: Acquire) {
        let Acquire {
            call,
            names,
            ttl_secs,
            mode,
            wait,
            record,
            holds,
        } = acquire;
        if self.refuses(!holds.is_empty()) {
            return self.refuse(call, Refused::ShuttingDown);
        }
        let once = wait == Wait::Once;
        if !once && holds.is_empty() && self.is_overloaded() {
            return self.refuse(call, Refused::Overloaded);
        }
        if once && let Some(why) = self.taken_here(now, &names, ttl_secs, mode) {
            return self.refuse(call, why);
        }
        let until = match wait {
            Wait::For(wait) => Some(now + wait),
            Wait::Once | Wait::Forever => None,
        };
        // All in one step, so that any two calls stand in the same order wherever they meet (rule P13).
        for name in &names {
            let queue = self.queues.entry(name.clone());
            let queue = queue.or_insert_with(|| Queue::new(name));
            queue.calls.push_back(call);
        }
        let names: Arc<[Key]> = match mode {
            Mode::Exclusive | Mode::Permits(_) => names.into(),
            Mode::Shared => {
                let places = names.iter().map(|name| place::shared(name, ttl_secs));
                places.collect()
            }
        };
        let nest = (!holds.is_empty()).then(|| {
            Box::new(Nest {
                outer: holds.clone(),
                ..Nest::default()
            })
        });
        let waiting = Box::new(Call {
            names: names.clone(),
            mode,
            ttl_secs,
            record,
            since: now,
            until,
            once,
            // Others of its mode may be below the name: a put shows who (rule P11).
            put_once: mode != Mode::Exclusive,
            requeued: 0,
            stage: Stage::Waiting,
            keep: None,
            lingers: false,
            lost: false,
            nest,
        });
        self.calls.insert(call, waiting);
        self.waiters += usize::from(!once);
        self.note_inner(call, &holds);
        if let Some(until) = until {
            self.at(until, Timer::Wait(call));
        }
        self.call_in(now, &names);
        if !self.closes_circle(now, call) {
            self.watch_for_circles(now, call);
            self.serve(now, call);
            // A try behind others of its kind is told with them: what they were told may have to be seen anew.
            if once && mode == Mode::Shared {
                self.turn_all(now, &names);
            }
        }
    }

    /// Whether as many calls wait as may. A single try never waits; and a call of a task that holds something is let in, though
    /// it counts: others wait for that task, and its work would be in vain.
    fn is_overloaded(&self) -> bool {
        self.settings
            .max_waiters
            .is_some_and(|max| self.waiters >= max)
    }

    /// What a single try is told if one of its names is taken, or closed, in this process (rule P11).
    fn taken_here(&self, now: Moment, names: &[Key], ttl_secs: i64, mode: Mode) -> Option<Refused> {
        names.iter().enumerate().find_map(|(name, key)| {
            let queue = self.queues.get(key)?;
            let free = match &queue.slot {
                Slot::Free => self.has_room_beside(now, key, mode),
                // What lingers passes to this one; any other would have to wait until it has gone.
                Slot::Held { call, .. } => {
                    let held = self.calls.get(call)?;
                    let fits = mode == Mode::Exclusive && held.ttl_secs == ttl_secs;
                    held.lingers && fits && names.len() == 1
                }
                _ => false,
            };
            // Who stands in line for the same may be served in a moment, and this one after it.
            let line = queue.calls.iter().map(|call| {
                steps::count(1);
                self.calls.get(call)
            });
            let mut line = line.map(|c| c.is_some_and(|c| c.mode == mode && !c.is_group()));
            let short = match mode {
                Mode::Shared | Mode::Permits(_) if names.len() == 1 => line.all(|same| same),
                _ => queue.calls.is_empty(),
            };
            let idle = short && free;
            (!idle).then(|| Refused::Held {
                name,
                holder: self.holder_here(key),
            })
        })
    }

    /// Whether what this process has of a name besides the exclusive key may let a call of this mode in. Another number of
    /// permits is seen when it is its turn.
    fn has_room_beside(&self, now: Moment, name: &Key, mode: Mode) -> bool {
        let busy = |queue: &Queue| match &queue.slot {
            Slot::Free => false,
            Slot::Held { .. } if mode == queue.seat.mode() => {
                let shut = matches!(self.gate(now, queue), Gate::Contended | Gate::Closed);
                mode == Mode::Shared && shut
            }
            Slot::Retained if mode == queue.seat.mode() => mode == Mode::Shared,
            Slot::Held { .. } | Slot::Retained => mode.mismatch(queue.seat).is_none(),
            Slot::Wanting { .. } | Slot::Putting { .. } | Slot::Doubt { .. } => {
                mode != queue.seat.mode()
            }
            Slot::Queued(Queued { ready, .. }) => mode != queue.seat.mode() || ready.is_none(),
            // Other permits are none the worse for one that goes.
            Slot::Deleting { .. } => mode == Mode::Shared || mode != queue.seat.mode(),
        };
        let taken = |queue: &Queue| !matches!(queue.slot, Slot::Free) && queue.seat != Seat::Shared;
        let full = match mode {
            Mode::Permits(of) => {
                let taken = self.places(name).filter(|(_, queue)| taken(queue));
                taken.count() >= usize::from(of.get())
            }
            Mode::Exclusive | Mode::Shared => false,
        };
        !full && !self.places(name).any(|(_, queue)| busy(queue))
    }

    pub(super) fn cancel(&mut self, now: Moment, call: CallId) {
        if let Some(waiting) = self.withdraw(call) {
            self.left(now, call);
            self.advance_all(now, &waiting.names);
        }
    }

    /// Takes a waiting call out of its queues: all of them at once. Their next steps are the caller's to take.
    pub(super) fn withdraw(&mut self, call: CallId) -> Option<Box<Call>> {
        if self.calls.get(&call)?.stage != Stage::Waiting {
            return None;
        }
        let waiting = self.calls.remove(&call)?;
        self.waiters -= usize::from(!waiting.once);
        for name in &*waiting.names {
            if let Some(queue) = self.queues.get_mut(place::name_of(name)) {
                queue.remove(call);
            }
        }
        if let Some(until) = waiting.until {
            self.timers.remove(&(until, Timer::Wait(call)));
        }
        Some(waiting)
    }

    /// Refuses calls that wait; then takes the next steps for their names.
    pub(super) fn reject(&mut self, now: Moment, calls: Vec<CallId>, why: &Refused) {
        let mut left = Vec::new();
        for call in calls {
            if let Some(waiting) = self.withdraw(call) {
                self.left(now, call);
                self.refuse(call, why.clone());
                left.push(waiting.names);
            }
        }
        for names in left {
            self.advance_all(now, &names);
        }
    }

    pub(super) fn wait_over(&mut self, now: Moment, call: CallId) {
        if !self.is_waiting(call) || self.clears_first(now, call) {
            return;
        }
        let Some(waiting) = self.calls.get(&call) else {
            return;
        };
        let why = self.why_not(now, call, waiting);
        self.reject(now, vec![call], &why);
    }

    /// What a call is told whose wait is over: who has one of its names, or what else it waited for.
    fn why_not(&self, now: Moment, call: CallId, waiting: &Call) -> Refused {
        // Of whatever mode: nobody of this process can have a part in a name without a place of it.
        let queues = || {
            let names = waiting.names.iter().enumerate();
            names.flat_map(|(name, key)| self.places(key).map(move |(_, queue)| (name, queue)))
        };
        let ahead = |queue: &Queue| self.head_of(queue) != Some(call);
        // A name whose turn it is, or that nobody was asked for yet, keeps no group waiting.
        let taken = |queue: &Queue| match queue.slot {
            Slot::Held { .. } | Slot::Retained | Slot::Deleting { .. } => true,
            Slot::Queued(Queued { ready, .. }) => ready.is_none() || ahead(queue),
            Slot::Free => ahead(queue),
            Slot::Wanting { .. } | Slot::Putting { .. } | Slot::Doubt { .. } => {
                ahead(queue) || queue.owner.is_some()
            }
        };
        // Silence is no answer: that nobody told us of a holder does not mean that there is one.
        let heard = |queue: &Queue| queue.heard.is_some_and(|at| at >= waiting.since);
        let unheard = |queue: &Queue| match queue.slot {
            _ if heard(queue) => None,
            Slot::Wanting { lease } | Slot::Putting { lease } | Slot::Doubt { lease } => {
                Some(lease)
            }
            _ => None,
        };
        let told = |queue: &Queue| unheard(queue).is_none() && taken(queue);
        let known = queues().find(|(_, queue)| told(queue) && queue.holder().is_some());
        if let Some((name, queue)) = known.or_else(|| queues().find(|(_, queue)| told(queue))) {
            return Refused::Timeout {
                name,
                holder: queue.holder(),
                waited: now - waiting.since,
            };
        }
        match queues().find_map(|(_, queue)| unheard(queue)) {
            Some(lease) => {
                let trouble = self.leases.get(&lease).and_then(|l| l.trouble.clone());
                Refused::Backend(match trouble {
                    Some(trouble) => trouble.cause,
                    None => Arc::from(Box::from("no answer within the wait")) as Cause,
                })
            }
            None => Refused::Timeout {
                name: 0,
                holder: None,
                waited: now - waiting.since,
            },
        }
    }

    /// The call has lost its locks: all of them, and it is told once (rule P13).
    pub(super) fn lose_call(&mut self, call: CallId, cause: LossCause) {
        let Some(Call { names, lingers, .. }) = self.calls.get(&call).map(Box::as_ref) else {
            return;
        };
        // Of what lingers nobody is left to be told.
        let (names, told) = (names.clone(), !lingers);
        let mut news = false;
        for name in &*names {
            if let Some(Slot::Held {
                call: of,
                beside,
                lost,
                ..
            }) = self.queues.get_mut(name).map(|queue| &mut queue.slot)
            {
                let has = *of == call || beside.contains(&call);
                news |= has;
                // What others have with it may still be theirs.
                *lost |= has && beside.is_empty();
            }
        }
        let lost = self.calls.get_mut(&call).map(|c| &mut c.lost);
        news &= lost.is_some_and(|lost| !std::mem::replace(lost, true));
        if news && told {
            self.outputs.push_back(Output::Lost { call, cause });
        }
    }

    /// Nobody here wants the name, or this place of it: forgets it, its watch a little later.
    pub(super) fn retire_queue(&mut self, now: Moment, name: &Key) {
        match self.queues.get_mut(name) {
            Some(queue) if queue.others > 0 => {} // it goes with the last of them
            Some(queue) if queue.watch.is_some() => {
                queue.reread_at = Some(now + WARM);
                self.at(now + WARM, Timer::Rest(name.clone()));
            }
            _ => self.forget(name),
        }
    }

    fn forget(&mut self, place: &Key) {
        let name = place::name_of(place);
        let removed = self.queues.remove(place);
        if removed.is_some_and(|queue| queue.seat != Seat::Exclusive)
            && let Some(queue) = self.queues.get_mut(name)
        {
            queue.others -= 1;
        }
    }

    pub(super) fn rest(&mut self, now: Moment, name: &Key) {
        let Some(queue) = self.queues.get(name) else {
            return;
        };
        let idle = matches!(queue.slot, Slot::Free) && queue.calls.is_empty();
        if idle && queue.reread_at.is_some_and(|at| at <= now) {
            if let Some(Watched { id, .. }) = self.queues.get_mut(name).and_then(|q| q.watch.take())
            {
                self.watches.remove(&id);
                self.outputs.push_back(Output::Unwatch { id });
            }
            self.retire_queue(now, name);
            self.turn(now, name); // the name itself may have waited for that
        }
    }
}
