//! How the keys of a process go again: guarded by their create revision, sent until answered (rules P24 to P26).

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::core::bundle::{self, Deletion};
use crate::core::call::Stage;
use crate::core::handovers::Run;
use crate::core::lease::{Lease, LeaseRef, State};
use crate::core::mode::Mode;
use crate::core::queue::{Queued, Slot};
use crate::core::request::{Failure, Key, Request, TxnAnswer};
use crate::core::{CallId, Core, Exchange, Output, Refused, Release, Timer, WINDOW};
use crate::error::LossCause;

/// How long a release waits for its confirmation (rule P25).
const CONFIRM: Duration = Duration::from_secs(2);

/// How long at least the keys of a call linger here for the next. Other processes wait that much longer, and up to [`TOGETHER`].
const LINGER: Duration = Duration::from_millis(1);
/// What has lingered goes together, once in so long: every deletion that goes alone is a commit more, in the way of whoever
/// locks next.
const TOGETHER: Duration = Duration::from_millis(2);

impl Core {
    /// The body of a call is gone: now its keys may go, to the next in this process or for good (rules P23, P26). `fenced`:
    /// somebody relies on their going (rule P22).
    pub(super) fn release(&mut self, now: Moment, call: CallId, how: Release, fenced: bool) {
        let released = self.calls.get(&call);
        let Some(released) = released.filter(|c| c.stage == Stage::Holding) else {
            return;
        };
        let names = released.names.clone();
        let mode = released.mode;
        if self.retain(now, call, how) {
            return;
        }
        let passes = !fenced && !self.tells_of_waits(call);
        let lingers = how == Release::Lingering && mode == Mode::Exclusive;
        if lingers && passes && self.may_linger(now, &names) {
            let until = together(now + LINGER);
            if let Some(released) = self.calls.get_mut(&call) {
                released.lingers = true;
                released.until = Some(until);
            }
            return self.at(until, Timer::Linger(call));
        }
        let heirs = match passes {
            true => self.heirs(now, call, &names),
            false => Vec::new(),
        };
        let confirm = how == Release::Confirmed;
        self.unpublish(now, call);
        let mut held_by = None;
        for heir in heirs {
            held_by = self.hand_over(now, call, heir).or(held_by);
        }
        let mut left = 0;
        for name in &*names {
            if let Some(lease) = self.leave_beside(name, call) {
                held_by = Some(lease);
            } else if let Some(lease) = self.release_key(name, call, confirm) {
                held_by = Some(lease);
                left += 1;
            }
        }
        let until = now + CONFIRM;
        if let Some(released) = self.calls.get_mut(&call) {
            released.stage = Stage::Releasing { left };
            released.until = Some(until);
        }
        let Some(lease) = held_by else {
            return;
        };
        if let Some(l) = self.leases.get_mut(&lease) {
            l.bodies -= 1;
            // Of a lost lease best effort will do: the next put goes by another lease and so by another key.
            let lost = l.state == State::Lost;
            match (confirm, lost) {
                (false, _) => drop(self.calls.remove(&call)),
                (true, true) => {
                    let cause = LossCause::Expired;
                    self.confirmed(call, Err(Refused::Lost { cause }));
                }
                (true, false) if left == 0 => self.confirmed(call, Ok(())),
                (true, false) => self.at(until, Timer::Confirm(call)),
            }
        }
        self.advance_all(now, &names);
        self.revoke_if_done(now, lease);
    }

    /// Whether keys may stay a moment after their body: nobody waits for them, as far as is known here.
    fn may_linger(&self, now: Moment, names: &[Key]) -> bool {
        let free = |name: &Key| {
            let Some(queue) = self.queues.get(name) else {
                return false;
            };
            let usable = |l: &Lease| l.state == State::Open && l.is_fresh(now);
            let passes = |(lease, run): (LeaseRef, &Run)| {
                let lease = self.leases.get(&lease);
                !run.is_contended() && run.goes_on(now) && lease.is_some_and(usable)
            };
            queue.calls.is_empty() && !queue.suspected && queue.slot.run().is_some_and(passes)
        };
        self.shutdown.is_none() && names.iter().all(free)
    }

    /// A call wants names that linger: they pass to it, or go.
    pub(super) fn call_in(&mut self, now: Moment, names: &[Key]) {
        for name in names {
            if let Some(&Slot::Held { call, .. }) = self.queues.get(name).map(|queue| &queue.slot) {
                self.linger_over(now, call);
            }
        }
    }

    /// What lingers has done so for long enough.
    pub(super) fn linger_over(&mut self, now: Moment, call: CallId) {
        let Some(lingering) = self.calls.get_mut(&call).filter(|c| c.lingers) else {
            return;
        };
        lingering.lingers = false;
        if let Some(until) = lingering.until.take() {
            self.timers.remove(&(until, Timer::Linger(call)));
        }
        self.release(now, call, Release::Unheard, false);
    }

    /// Sends one key of a released call off; answers its lease.
    fn release_key(&mut self, name: &Key, call: CallId, confirm: bool) -> Option<LeaseRef> {
        let queue = self.queues.get_mut(name)?;
        let Slot::Held {
            lease,
            created,
            call: of,
            guard_at,
            ..
        } = queue.slot
        else {
            return None;
        };
        let l = self.leases.get_mut(&lease).filter(|_| of == call)?;
        l.joining.remove(name);
        self.timers.remove(&(guard_at, Timer::Guard(name.clone())));
        self.deletions.push_back(Deletion {
            name: name.clone(),
            key: queue.own_key(l.id),
            created,
            lease,
        });
        queue.slot = match l.state {
            State::Lost => Slot::Free,
            _ => Slot::Deleting {
                lease,
                created,
                confirm: confirm.then_some(call),
            },
        };
        Some(lease)
    }

    /// Whoever released a call is told once so many keys are gone, or soon without.
    pub(super) fn expects_confirmation(&mut self, now: Moment, call: CallId, left: usize) {
        let until = now + CONFIRM;
        if let Some(released) = self.calls.get_mut(&call) {
            released.stage = Stage::Releasing { left };
            released.until = Some(until);
            self.at(until, Timer::Confirm(call));
        }
    }

    /// Tells whoever waits for the release of a call how it ended, once.
    pub(super) fn confirmed(&mut self, call: CallId, result: Result<(), Refused>) {
        let known = self.calls.get(&call);
        if known.is_some_and(|c| matches!(c.stage, Stage::Releasing { .. })) {
            // Thousands of calls may end before the first of these timers is due.
            if let Some(until) = self.calls.remove(&call).and_then(|c| c.until) {
                self.timers.remove(&(until, Timer::Confirm(call)));
            }
            self.outputs.push_back(Output::Released { call, result });
        }
    }

    /// Whoever waits for a release has waited long enough; the keys stay on our list (rule P25).
    pub(super) fn confirm_over(&mut self, call: CallId) {
        let Some(names) = self.calls.get(&call).map(|c| c.names.clone()) else {
            return;
        };
        let mut trouble = None;
        for name in &*names {
            if let Some(Slot::Deleting { confirm, lease, .. }) =
                self.queues.get_mut(name).map(|queue| &mut queue.slot)
                && confirm.take_if(|of| *of == call).is_some()
            {
                trouble = trouble.or_else(|| self.leases.get(lease)?.trouble.clone());
            }
        }
        let cause = match trouble {
            Some(trouble) => trouble.cause,
            None => Arc::from(Box::from("etcd did not confirm the release in time")),
        };
        self.confirmed(call, Err(Refused::Backend(cause)));
    }

    /// Deletes the key of a queue that nobody here wants.
    pub(super) fn delete(&mut self, name: &Key) {
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        let Slot::Queued(Queued { lease, created, .. }) = queue.slot else {
            return;
        };
        let Some(l) = self.leases.get(&lease) else {
            return;
        };
        let key = queue.own_key(l.id);
        queue.slot = Slot::Deleting {
            lease,
            created,
            confirm: None,
        };
        self.deletions.push_back(Deletion {
            name: name.clone(),
            key,
            created,
            lease,
        });
    }

    /// Sends the deletions that wait, as long as the window is free.
    pub(super) fn flush_deletions(&mut self, now: Moment) {
        if self.deletions_after.is_some_and(|after| now < after) {
            return;
        }
        while self.deletes_under_way < WINDOW && !self.deletions.is_empty() {
            let many = self.deletions.len().min(bundle::LOCKS);
            let deletions: Vec<Deletion> = self.deletions.drain(..many).collect();
            self.deletes_under_way += 1;
            self.send(
                now,
                Request::Txn(bundle::delete(&deletions)),
                Exchange::Delete(deletions),
            );
        }
    }

    pub(super) fn deleted(
        &mut self,
        now: Moment,
        deletions: Vec<Deletion>,
        result: Result<TxnAnswer, Failure>,
    ) {
        self.deletes_under_way -= 1;
        match result {
            Ok(answer) => {
                self.deletions_after = None;
                self.deletes_failed = 0;
                let left = bundle::undeleted(deletions.clone(), answer);
                for deletion in deletions.iter().filter(|d| !left.contains(d)) {
                    self.gone(now, deletion);
                }
                self.deletions.extend(left);
            }
            // Guarded, so it may be sent as often as we like (rule P24); and it is, even if its lease is gone, because the
            // name is closed until it is answered (rule P4), and the key may have been put under another lease (rule P25).
            Err(Failure::Unavailable(_) | Failure::Unknown(_)) => {
                let pause = self.pause(self.deletes_failed);
                self.deletes_failed += 1;
                let after = now + pause;
                self.deletions_after = Some(after);
                self.at(after, Timer::Flush);
                self.deletions.extend(deletions);
            }
            Err(Failure::Refused { .. }) if deletions.len() > 1 => {
                let (left, right) = deletions.split_at(deletions.len() / 2);
                for half in [left, right] {
                    self.deletes_under_way += 1;
                    self.send(
                        now,
                        Request::Txn(bundle::delete(half)),
                        Exchange::Delete(half.to_vec()),
                    );
                }
            }
            // We may not delete it: it goes with its lease.
            Err(failure) => {
                for deletion in deletions {
                    if let Some(call) = self.confirming(&deletion) {
                        self.confirmed(call, Err(Refused::by(failure.clone())));
                    }
                    self.retire(now, deletion.lease);
                    self.gone(now, &deletion);
                }
            }
        }
    }

    /// The call that waits for this deletion, if any; it waits for it no longer.
    fn confirming(&mut self, deletion: &Deletion) -> Option<CallId> {
        let queue = self.queues.get_mut(&deletion.name)?;
        match &mut queue.slot {
            Slot::Deleting {
                lease,
                created,
                confirm,
            } if *lease == deletion.lease && *created == deletion.created => confirm.take(),
            _ => None,
        }
    }

    /// The incarnation is known to be gone.
    fn gone(&mut self, now: Moment, deletion: &Deletion) {
        if let Some(call) = self.confirming(deletion)
            && let Some(Stage::Releasing { left }) = self.calls.get_mut(&call).map(|c| &mut c.stage)
        {
            *left -= 1;
            if *left == 0 {
                self.confirmed(call, Ok(()));
            }
        }
        let Some(queue) = self.queues.get_mut(&deletion.name) else {
            return;
        };
        queue.heard = Some(now);
        if let Slot::Deleting { lease, created, .. } = queue.slot
            && (lease, created) == (deletion.lease, deletion.created)
        {
            queue.owner = None; // nobody is told of it any more: it is not looked for without a key
            self.free(now, &deletion.name);
        }
    }
}

/// The first moment not before this one at which what lingers goes.
fn together(at: Moment) -> Moment {
    let late = at.since_boot().as_nanos() % TOGETHER.as_nanos();
    match u64::try_from(late) {
        Ok(late @ 1..) => at + TOGETHER - Duration::from_nanos(late),
        _ => at,
    }
}
