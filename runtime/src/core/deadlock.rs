//! Deadlocks: circles of calls that wait for each other, found and cut, each at one place (rule P38).
//!
//! Inside the process the circle is seen in the step in which it closes ([`graph`](super::graph)). Across processes a call
//! whose task holds something says on the keys it holds what it waits for ([`publications`](super::publications)), looks
//! for a circle by reading ([`cycle`](super::cycle)), and cuts it by one transaction that applies only if all of it still
//! stands: nobody is refused because of a circle that was none, and of those who try at once one succeeds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::clock::Moment;
use crate::core::abort::Abort;
use crate::core::bundle::Deletion;
use crate::core::call::Stage;
use crate::core::cycle::{Before, Circle, Search};
use crate::core::place;
use crate::core::publications::{HeldKey, Publication};
use crate::core::queue::{Queued, Slot};
use crate::core::record::Incarnation;
use crate::core::request::{Failure, Key, Request, TxnAnswer};
use crate::core::{CallId, Core, Exchange, Refused, Timer};

/// How long a call waits before anything is done about circles, and how long between two steps of that.
const STEP: Duration = Duration::from_secs(1);

/// From this step on the youngest of a circle cuts it; a group whose task holds nothing has done so from the first.
const YOUNGEST: u32 = 2;

/// From this step on anybody does. After it every second step looks.
const ANYBODY: u32 = 4;

/// A call that is none: what was put for it is for nobody.
const NOBODY: CallId = CallId::MAX;

/// What is known, said and done about circles.
#[derive(Debug, Default)]
pub(crate) struct Deadlocks {
    pub(super) publications: BTreeMap<CallId, Publication>,
    /// Calls whose wait is over, as soon as nobody follows their edges any more.
    pub(super) leaving: BTreeSet<CallId>,
    /// Calls that are being taken out of a circle.
    pub(super) aborting: BTreeSet<CallId>,
    /// Steps of the calls that look for circles.
    steps: BTreeMap<CallId, u32>,
    searches: BTreeMap<CallId, Search>,
}

impl Core {
    /// A call begins to wait: whether it was refused because it closed a circle inside the process.
    pub(super) fn closes_circle(&mut self, now: Moment, call: CallId) -> bool {
        while let Some(path) = self.circle_here(call) {
            if let Some(&group) = path.iter().find(|of| self.may_requeue(**of)) {
                self.requeue(now, group);
                continue;
            }
            let blocked = path.first().and_then(|of| self.calls.get(of));
            let blocked: &[Key] = blocked.map_or(&[], |c| &c.names);
            let names = self.calls.get(&call).map(|c| c.names.clone());
            let mut names = names.iter().flat_map(|names| names.iter());
            let same = |one: &Key, other: &Key| place::name_of(one) == place::name_of(other);
            let name = names.position(|name| blocked.iter().any(|of| same(name, of)));
            let name = name.unwrap_or(0);
            let cycle = self.blockers_here(&path).into();
            self.reject(now, vec![call], &Refused::Deadlock { name, cycle });
            return true;
        }
        false
    }

    /// Looks after the call, should it wait for long.
    pub(super) fn watch_for_circles(&mut self, now: Moment, call: CallId) {
        let Some(c) = self.calls.get(&call) else {
            return;
        };
        if c.stage == Stage::Waiting && !c.once && (c.is_group() || !c.outer().is_empty()) {
            self.at(now + STEP, Timer::Deadlock(call));
        }
    }

    /// Sends a group to the end of its queues, and takes its keys back.
    fn requeue(&mut self, now: Moment, group: CallId) {
        let Some(names) = self.calls.get(&group).map(|c| c.names.clone()) else {
            return;
        };
        self.step_back(group, &names);
        for name in &*names {
            let Some(queue) = self.queues.get_mut(name) else {
                continue;
            };
            if queue.group != Some(group) {
                continue;
            }
            match queue.slot {
                Slot::Putting { .. } | Slot::Doubt { .. } => queue.group = Some(NOBODY),
                _ => self.take_back(name),
            }
        }
        self.advance_all(now, &names);
    }

    pub(super) fn step_back(&mut self, group: CallId, names: &[Key]) {
        for name in names {
            if let Some(queue) = self.queues.get_mut(place::name_of(name)) {
                queue.remove(group);
                queue.calls.push_back(group);
            }
        }
        if let Some(c) = self.calls.get_mut(&group) {
            c.requeued += 1;
        }
    }

    /// A call has left its queues: what rested on it is unwritten.
    pub(super) fn left(&mut self, now: Moment, call: CallId) {
        self.deadlocks.leaving.remove(&call);
        self.deadlocks.steps.remove(&call);
        self.deadlocks.searches.remove(&call);
        self.unwrite_stale(now);
    }

    /// Whether its keys may say what its task waits for: then they are not handed on, as that is not so of the next holder.
    pub(super) fn tells_of_waits(&self, holder: CallId) -> bool {
        let publication = self.deadlocks.publications.get(&holder);
        publication.is_some_and(|publication| !publication.may.is_empty())
    }

    /// The next step of a call that waits; or a holder's keys are to be written again.
    pub(super) fn step(&mut self, now: Moment, call: CallId) {
        let Some(c) = self.calls.get(&call) else {
            return;
        };
        if c.stage != Stage::Waiting {
            if self.deadlocks.publications.contains_key(&call) {
                self.publish(now, call);
            }
            self.deadlocks.steps.remove(&call);
            return;
        }
        let outer = self.outer(c);
        let alone = outer.is_empty();
        if alone && !c.is_group() {
            return;
        }
        let step = self.deadlocks.steps.entry(call).or_default();
        *step += 1;
        let step = *step;
        let next = self.jittered(STEP);
        self.at(now + next, Timer::Deadlock(call));
        for holder in &outer {
            self.publish(now, *holder);
        }
        let due = match alone {
            true => step % 2 == 1,
            false => step >= YOUNGEST && (step <= ANYBODY || step.is_multiple_of(2)),
        };
        let busy = self.deadlocks.aborting.contains(&call)
            || self.deadlocks.leaving.contains(&call)
            || self.deadlocks.searches.contains_key(&call);
        if due && !busy {
            self.begin_search(now, call, &outer);
        }
    }

    fn begin_search(&mut self, now: Moment, call: CallId, outer: &[CallId]) {
        let (starts, ends) = if outer.is_empty() {
            let Some(own) = self.own_waiting(call) else {
                return;
            };
            let own: BTreeSet<_> = own.iter().map(|d| (d.key.clone(), d.created)).collect();
            (own.clone(), own)
        } else {
            let ends = self
                .held_by(outer)
                .map(|(_, held)| (held.key, held.created));
            (self.waits_of_calls(&[call]).keys, ends.collect())
        };
        if starts.is_empty() || ends.is_empty() {
            return;
        }
        let search = Search::new(self.settings.prefix.clone(), starts, ends);
        self.deadlocks.searches.insert(call, search);
        self.go_on(now, call);
    }

    /// The keys of these holders.
    fn held_by(&self, holders: &[CallId]) -> impl Iterator<Item = (CallId, HeldKey)> {
        holders.iter().flat_map(move |holder| {
            let names = self.calls.get(holder).map(|c| c.names.clone());
            let names = names.into_iter().flat_map(|names| names.to_vec());
            names.filter_map(move |name| Some((*holder, self.held_key(&name, *holder)?)))
        })
    }

    /// The keys that wait for this very call; `None`: it has some that have not come to that.
    fn own_waiting(&self, call: CallId) -> Option<Vec<Deletion>> {
        let names = self.calls.get(&call)?.names.clone();
        let mut own = Vec::new();
        for name in &*names {
            if self.head(name) != Some(call) {
                continue; // then it has none at all
            }
            let Some(queue) = self.queues.get(name) else {
                continue;
            };
            let Slot::Queued(Queued { lease, created, .. }) = queue.slot else {
                continue;
            };
            if self.fits(queue) {
                own.push(Deletion {
                    name: name.clone(),
                    key: queue.own_key(self.leases.get(&lease)?.id),
                    created,
                    lease,
                });
            }
        }
        (own.is_empty() || own.len() == names.len()).then_some(own)
    }

    /// Reads on for a search, or ends it.
    fn go_on(&mut self, now: Moment, call: CallId) {
        let Some(search) = self.deadlocks.searches.get_mut(&call) else {
            return;
        };
        match search.next() {
            Some(txn) => {
                self.send(now, Request::Txn(txn), Exchange::Search(call));
            }
            None => drop(self.deadlocks.searches.remove(&call)),
        }
    }

    /// A read of a search was answered, or not.
    pub(super) fn searched(
        &mut self,
        now: Moment,
        call: CallId,
        result: Result<TxnAnswer, Failure>,
    ) {
        let Some(search) = self.deadlocks.searches.get_mut(&call) else {
            return;
        };
        let Ok(answer) = result else {
            return drop(self.deadlocks.searches.remove(&call)); // the next step begins anew
        };
        let Some(circle) = search.found(answer) else {
            return self.go_on(now, call);
        };
        self.deadlocks.searches.remove(&call);
        self.cut(now, call, circle);
    }

    /// A circle was seen: cuts it, if that is this call's to do.
    fn cut(&mut self, now: Moment, call: CallId, circle: Circle) {
        let Some(c) = self.calls.get(&call).filter(|c| c.stage == Stage::Waiting) else {
            return;
        };
        let outer = self.outer(c);
        let step = self.deadlocks.steps.get(&call).copied().unwrap_or(0);
        // A group that only has to step back is left the time to do so.
        let ours = outer.is_empty()
            || step >= ANYBODY
            || (circle.begins_with_youngest() && !circle.has_group());
        let ours = ours && !self.deadlocks.leaving.contains(&call);
        let Some(own) = self.own_waiting(call).filter(|_| ours) else {
            return;
        };
        let held: Vec<_> = self.held_by(&outer).collect();
        let (Some(first), Some(last)) = (circle.links.first(), circle.links.last()) else {
            return;
        };
        let (start, closing) = (&first.waiting, &last.before);
        let is_closing = |key: &Key, created| *key == closing.key && created == closing.created;
        let holder = held
            .iter()
            .find(|(_, key)| is_closing(&key.key, key.created));
        if holder.is_none() && !own.iter().any(|d| is_closing(&d.key, d.created)) {
            return;
        }
        // What we read of our own keys must be what we have written, or others do not see our edges as we think.
        if let Some((holder, _)) = holder
            && !self.stands(*holder, closing)
        {
            return self.publish_again(now, *holder);
        }
        // The call may have come to wait for something else since the search began. From here on that cannot happen without
        // the holder's keys being written anew, if they say what it waits for: then nothing is cut.
        let depends = || self.waits_of_calls(&[call]).keys.contains(start);
        if let Some((holder, _)) = holder
            && !(self.tells_of(*holder, start) && depends())
        {
            return;
        }
        let calm = |holder: &CallId| {
            let publication = self.deadlocks.publications.get(holder);
            publication.is_none_or(|publication| publication.sure && !publication.writing)
        };
        if !outer.iter().all(calm) {
            return;
        }
        self.deadlocks.leaving.insert(call); // what is left without it
        let written = |holder: &&CallId| self.deadlocks.publications.contains_key(holder);
        let written = outer.iter().filter(written);
        let rest = written.map(|holder| (*holder, self.waits_of(*holder)));
        let rest = rest.collect();
        self.deadlocks.leaving.remove(&call);
        self.abort(
            now,
            Abort {
                call,
                circle,
                own,
                rest,
            },
        );
    }

    /// Whether the keys of a holder say that its task depends on this waiting key.
    fn tells_of(&self, holder: CallId, waiting: &Incarnation) -> bool {
        let publication = self.deadlocks.publications.get(&holder);
        publication.is_some_and(|p| p.sure && p.may.contains(waiting))
    }

    /// Whether a key of a holder, as it was read, says what it is to say: as it was written, or as somebody who holds it too has
    /// written it since.
    fn stands(&mut self, holder: CallId, read: &Before) -> bool {
        let place = self.place_of_key(holder, &read.key);
        let shared = place.as_ref().and_then(|place| self.queues.get(place));
        let shared = shared.is_some_and(|queue| queue.slot.holders().count() > 1);
        let Some(publication) = self.deadlocks.publications.get_mut(&holder) else {
            return false;
        };
        if publication.sure && shared {
            let told: BTreeSet<_> = read.waits().into_iter().collect();
            let provided: BTreeSet<_> = read.provided().into_iter().collect();
            let mut keys = publication.keys.iter_mut();
            if let Some((_, at)) = keys.find(|(name, _)| Some(name) == place.as_ref())
                && publication.may.is_subset(&told)
                && publication.provided.is_subset(&provided)
            {
                *at = read.modified;
            }
        }
        let mut keys = publication.keys.iter();
        publication.sure && keys.any(|(_, at)| *at == read.modified)
    }

    /// The place of a holder's key.
    fn place_of_key(&self, holder: CallId, key: &Key) -> Option<Key> {
        let names = self.calls.get(&holder)?.names.clone();
        let is_it = |name: &&Key| {
            self.held_key(name, holder)
                .is_some_and(|held| held.key == *key)
        };
        names.iter().find(is_it).cloned()
    }
}
