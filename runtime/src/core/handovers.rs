//! How a lock is handed on inside the process: no word to etcd, the same key, the next hand-over number (rules P22, P23).
//!
//! Invariants:
//! - A key is handed on only to a call that receives all its names in that one step, from one call that held them all: so the
//!   keys of a call are always of one transaction, and groups cannot come to wait for each other.
//! - Only on a lease on which the lock could be granted anew (rule P12), by the same TTL, and only keys that nobody has
//!   touched. What is not handed on is deleted, so a token of the next ownership has a higher revision.
//! - Other processes wait for a bounded time: see [`Run`].

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::core::call::{Call, Stage};
use crate::core::lease::{LeaseRef, State};
use crate::core::mode::Mode;
use crate::core::place;
use crate::core::queue::Slot;
use crate::core::record::Incarnation;
use crate::core::request::{Key, Revision};
use crate::core::{CallId, Core, Grant, Output, Owned, Timer};

/// How often, and for how long, a key is handed on before it is looked whether another process waits.
const TURNS: u32 = 64;
const RUN: Duration = Duration::from_millis(20);

/// How long to wait for that look: then it is taken that somebody does.
const PATIENCE: Duration = Duration::from_secs(1);

/// One ownership of a key by this process, through all hand-overs.
///
/// While other processes wait, a run ends after [`TURNS`] hand-overs, or [`RUN`]: then the key is deleted, and the calls here
/// queue again, behind those others.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    /// The token: its revision, and the number of hand-overs since.
    pub(crate) revision: Revision,
    pub(crate) handover: u16,
    /// Hand-overs since a look showed that nobody else waits, or since the beginning; and when that was.
    turns: u32,
    since: Moment,
    /// When it was asked whether somebody does; not answered yet.
    asked: Option<Moment>,
    /// A key of another process that waits, as far as was seen last, and since when one is known to.
    behind: Option<(Moment, Incarnation)>,
    /// When it was last seen whether one does; and when the look was sent that showed it last.
    seen: Option<Moment>,
    read: Option<Moment>,
}

impl Run {
    pub(crate) fn begin(now: Moment, revision: Revision, alone: bool) -> Self {
        Self {
            revision,
            handover: 0,
            turns: 0,
            since: now,
            asked: None,
            behind: None,
            seen: alone.then_some(now),
            read: None,
        }
    }

    /// Another process waits, as far as was seen last.
    pub(crate) fn is_contended(&self) -> bool {
        self.behind.is_some()
    }

    /// Its key.
    pub(super) fn behind(&self) -> Option<&Incarnation> {
        self.behind.as_ref().map(|(_, key)| key)
    }

    /// For how long it has been known that one does.
    pub(super) fn contended_for(&self, now: Moment) -> Option<Duration> {
        self.behind.as_ref().map(|(since, _)| now - *since)
    }

    /// Whether it was seen then, or later, whether another process waits.
    pub(super) fn was_seen(&self, then: Moment) -> bool {
        self.seen.is_some_and(|seen| seen >= then)
    }

    /// Whether it is so that another process waits, as etcd has said to a look that was sent then, or later.
    pub(super) fn was_contended(&self, then: Moment) -> bool {
        self.is_contended() && self.read.is_some_and(|read| read >= then)
    }

    /// Somebody was seen to come who waits.
    pub(super) fn met(&mut self, now: Moment, key: Incarnation) {
        self.behind.get_or_insert((now, key));
        self.seen = Some(now);
    }

    /// A look that was sent then showed that this key of another process waits, or that none does.
    pub(crate) fn looked(&mut self, now: Moment, sent: Moment, behind: Option<Incarnation>) {
        let since = self.behind.take().map_or(now, |(since, _)| since);
        self.behind = behind.map(|key| (since, key));
        self.seen = Some(now);
        self.read = Some(sent);
        if self.is_contended() {
            return;
        }
        self.asked = None;
        self.turns = 0;
        self.since = now;
    }

    /// Whether the key has been ours for as long as it may be unless we know that nobody else waits.
    fn is_spent(&self, now: Moment) -> bool {
        self.turns >= TURNS || now - self.since >= RUN
    }

    /// Whether the key may be handed on once more.
    pub(super) fn goes_on(&self, now: Moment) -> bool {
        let patient = self.asked.is_none_or(|at| now - at < PATIENCE);
        self.handover < u16::MAX && (!self.is_spent(now) || (!self.is_contended() && patient))
    }
}

impl Core {
    /// The calls that a call whose body is gone hands its locks to.
    pub(super) fn heirs(&self, now: Moment, call: CallId, names: &[Key]) -> Vec<CallId> {
        let mut heirs: Vec<CallId> = Vec::new();
        for name in names {
            if let Some(heir) = self.head(name)
                && !heirs.contains(&heir)
                && self.inherits(now, heir, call)
            {
                heirs.push(heir);
            }
        }
        heirs
    }

    /// Whether one call can take over from another.
    fn inherits(&self, now: Moment, heir: CallId, from: CallId) -> bool {
        let Some(call) = self.calls.get(&heir) else {
            return false;
        };
        self.places_for(call, from).iter().all(|name| {
            let Some(queue) = self.queues.get(name) else {
                return false;
            };
            let Slot::Held {
                lease,
                call: of,
                lost: false,
                run,
                ..
            } = &queue.slot
            else {
                return false;
            };
            let fits = self.leases.get(lease).is_some_and(|l| {
                l.ttl_secs == call.ttl_secs
                    && matches!(l.state, State::Open | State::Sealing)
                    && l.is_fresh(now)
                    && !l.deadline.is_over(now)
            });
            *of == from
                && fits
                && queue.seat.mode() == call.mode
                && call.mode != Mode::Shared // who may be beside it has joined
                && self.head(name) == Some(heir)
                && !queue.suspected
                && run.goes_on(now)
        })
    }

    /// The places in which a call could take over from another: any permit is as good as the one it waits for.
    fn places_for(&self, heir: &Call, from: CallId) -> Arc<[Key]> {
        match (heir.mode, self.calls.get(&from)) {
            (Mode::Permits(_), Some(from)) if !heir.is_group() && !from.is_group() => {
                from.names.clone()
            }
            _ => heir.names.clone(),
        }
    }

    /// Hands the keys of a call whose body is gone on; answers their lease.
    pub(super) fn hand_over(
        &mut self,
        now: Moment,
        from: CallId,
        heir: CallId,
    ) -> Option<LeaseRef> {
        let places = self.places_for(self.calls.get(&heir)?, from);
        let call = self.calls.get_mut(&heir)?;
        let waited_for = std::mem::replace(&mut call.names, places.clone());
        call.stage = Stage::Holding;
        self.waiters -= usize::from(!call.once);
        if let Some(until) = call.until {
            self.timers.remove(&(until, Timer::Wait(heir)));
        }
        let mut owned = Vec::with_capacity(call.names.len());
        let mut under = None;
        for name in &*call.names {
            let Some(queue) = self.queues.get_mut(name) else {
                continue;
            };
            let Slot::Held {
                lease,
                created,
                call: of,
                run,
                ..
            } = &mut queue.slot
            else {
                continue;
            };
            let Some(l) = self.leases.get(lease) else {
                continue;
            };
            run.handover += 1;
            run.turns += 1;
            if run.is_spent(now) && !run.is_contended() && run.asked.is_none() {
                run.asked = Some(now);
                self.looks.insert(name.clone());
            }
            owned.push(Owned {
                key: place::key(&queue.family, l.id, queue.seat),
                created: *created,
                revision: run.revision,
                handover: run.handover,
            });
            *of = heir;
            under = Some(*lease);
            // What etcd shows stays the first holder's record.
            queue.record = Some(call.record.clone());
        }
        self.leave_line(heir, &places);
        if waited_for != places {
            self.next.extend(waited_for.iter().cloned()); // the permit it waited for is for the next
        }
        let l = self.leases.get_mut(&under?)?;
        l.bodies += 1;
        let deadline = l.deadline.clone();
        self.outputs.push_back(Output::Granted(Grant {
            call: heir,
            owned,
            deadline,
        }));
        under
    }
}
