//! Calls of the bench, their bodies, and the results they get.

use std::num::NonZeroU16;
use std::time::Duration;

use super::bench::{Bench, Happening};
use super::etcd::Incarnation;
use super::nemesis::lease_of;
use super::tally::Happened;
use super::violation::must;
use crate::world::CallId;
use etcd_locked_core::{
    Acquire, CallId as Id, Grant, Input, Key, Kv, LossCause, Mode, Moment, Output, OwnedKey,
    Refused, Release, Response, Seat, Wait, admits,
};

/// The last one must not be written.
pub(crate) const NAMES: [&str; 4] = ["locks/a", "locks/b", "locks/a/c", FORBIDDEN];
pub(crate) const FORBIDDEN: &str = "locks/forbidden";

/// The properties of the calls of a schedule.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    /// The number of names in use.
    pub(crate) names: u64,
    /// Bodies are short, so that keys are put and deleted all the time.
    pub(crate) hasty: bool,
    /// The share of calls with several names.
    pub(crate) groups: f64,
    /// The share of bodies that make another call.
    pub(crate) nested: f64,
    /// They do so in any order, and so may wait for each other.
    pub(crate) inverted: bool,
    /// No call is cancelled before its wait is over.
    pub(crate) patient: bool,
    /// The share of readers, and of calls for one of a few permits.
    pub(crate) shared: f64,
    pub(crate) permits: f64,
}

/// One call of `lock(..)` and its body.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) machine: usize,
    /// The process in which it runs.
    pub(crate) process: usize,
    pub(crate) names: Vec<Key>,
    pub(crate) mode: Mode,
    pub(crate) ttl_secs: i64,
    pub(crate) wait: Wait,
    pub(crate) cancel_after: Option<Duration>,
    pub(crate) hold: Duration,
    /// How long the body continues after a loss, as a poll in progress would.
    pub(crate) reluctance: Duration,
    pub(crate) how: Release,
    pub(crate) fenced: bool,
    /// The call whose body makes it, and the call that its own body makes.
    pub(crate) outer: Option<CallId>,
    pub(crate) inner: Option<CallId>,
    /// True if its own work is done, and it waits for the inner call.
    pub(crate) due: bool,
    /// Its rank among the submitted calls, and the number of responses that its core had received then; the last rank when its
    /// core let it go; whether its caller is gone and the core does not know that yet.
    pub(crate) known: Option<u64>,
    pub(crate) heard: usize,
    pub(crate) left: Option<u64>,
    pub(crate) given_up: bool,
    pub(crate) stage: Stage,
}

#[derive(Debug)]
pub(crate) enum Stage {
    Idle,
    Waiting,
    Holding(Body),
    Releasing,
    Done,
}

/// Most calls use the same number.
const PERMITS: [u16; 24] = [2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3];

/// How long readers may join past a waiting key: the validity of a read, and the way back of its response.
const JOINS: Duration = Duration::from_millis(50 + 4);
const JOINS_LATE: Duration = Duration::from_secs(15);

const RELEASES: [Release; 3] = [Release::Confirmed, Release::Unconfirmed, Release::Lingering];

impl Call {
    /// Returns a call for a name that waits without limit, and holds until its body is dropped.
    pub(crate) fn of(name: &str, ttl_secs: i64) -> Self {
        Self {
            machine: 0,
            process: 0,
            names: vec![name.into()],
            mode: Mode::Exclusive,
            ttl_secs,
            wait: Wait::Forever,
            cancel_after: None,
            hold: Duration::MAX,
            reluctance: Duration::ZERO,
            how: Release::Confirmed,
            fenced: false,
            outer: None,
            inner: None,
            due: false,
            known: None,
            heard: 0,
            left: None,
            given_up: false,
            stage: Stage::Idle,
        }
    }
}

/// A body that runs.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) grant: Grant,
    /// The loss that the core has reported.
    pub(crate) lost: Option<LossCause>,
    /// Whether its deadline is over, and whether that happened before its stop time.
    pub(crate) over: bool,
    pub(crate) early: bool,
    /// The stop time as it was last.
    pub(crate) stop: Moment,
}

impl Bench {
    /// Plans a random call. Returns the number of ids it used.
    pub(crate) fn plan(&mut self, id: CallId, crowd: &Crowd, within: Duration) -> u64 {
        let call = self.draw(crowd, None);
        let at = self.now + self.random.micros(0, within.as_micros() as u64);
        let nested = self.random.chance(crowd.nested);
        self.calls.insert(id, call);
        self.at(at, Happening::Call(id));
        if !nested {
            return 1;
        }
        let mut inner = self.draw(crowd, Some(id));
        // Some calls are cancelled at about the time of a search for a cycle, or of an abort.
        if crowd.inverted {
            inner.wait = match self.random.chance(0.4) {
                true => Wait::Forever,
                false => Wait::For(self.random.millis(1900, 2700)),
            };
        }
        let outer = self.calls.get_mut(&id).expect("a call");
        // Tasks that take names in another order deadlock, and one must be refused. Most need not.
        let last = &outer.names[outer.names.len() - 1];
        let mut names = inner.names.iter();
        let is_unfit = |name| match crowd.inverted {
            true => outer.names.contains(name),
            false => name <= last,
        };
        if names.any(is_unfit) {
            return 1;
        }
        outer.inner = Some(id + 1);
        self.calls.insert(id + 1, inner);
        2
    }

    /// Plans a call in each process that ends soon.
    pub(crate) fn plan_last_calls(&mut self) {
        let first = self.calls.last_key_value().map_or(0, |(id, _)| id + 1);
        self.progress = self.now;
        for machine in 0..self.machines.len() {
            let (id, random) = (first + machine as u64, &mut self.random);
            let call = Call::of(random.one(&NAMES[..3]), 2);
            let (hold, how) = (random.millis(0, 60), random.one(&RELEASES));
            self.calls.insert(id, Call { machine, hold, how, ..call });
            self.at(self.now, Happening::Call(id));
        }
    }

    fn draw(&mut self, crowd: &Crowd, outer: Option<CallId>) -> Call {
        let random = &mut self.random;
        let wait = match random.below(10) {
            _ if outer.is_some() => Wait::For(random.millis(0, 6000)),
            0 | 1 => Wait::Once,
            2..=5 => Wait::For(random.millis(0, 6000)),
            _ => Wait::Forever,
        };
        let hold = match random.below(10) {
            0 | 1 if !crowd.hasty => random.millis(0, 8000),
            2 => random.millis(0, 1500),
            _ => random.millis(0, 40),
        };
        let mut names: Vec<Key> = match random.below(40) {
            0 => vec![FORBIDDEN.into()],
            n if n < 25 && !crowd.inverted => vec![NAMES[0].into()],
            _ => vec![NAMES[random.below(crowd.names) as usize].into()],
        };
        if random.chance(crowd.groups) {
            for _ in 0..=random.below(2) {
                let other: Key = NAMES[random.below(crowd.names) as usize].into();
                if !names.contains(&other) {
                    names.push(other);
                }
            }
            let first = random.below(names.len() as u64) as usize;
            names.rotate_left(first);
        }
        // Drawn only where the mode may differ, so that other schedules stay the same.
        let mode = match () {
            () if crowd.shared > 0.0 && random.chance(crowd.shared) => Mode::Shared,
            () if crowd.permits > 0.0 && random.chance(crowd.permits) => {
                let number = random.one(&PERMITS);
                NonZeroU16::new(number).map_or(Mode::Exclusive, Mode::Permits)
            }
            () => Mode::Exclusive,
        };
        Call {
            machine: random.below(self.machines.len() as u64) as usize,
            mode,
            ttl_secs: if random.chance(0.8) { 2 } else { 5 },
            wait,
            cancel_after: random
                .chance(if crowd.patient { 0.0 } else { 0.2 })
                .then(|| random.millis(0, 3000) / if random.chance(0.5) { 100 } else { 1 }),
            hold,
            reluctance: match random.chance(0.2) {
                true => random.millis(0, 4000),
                false => Duration::ZERO,
            },
            how: random.one(&RELEASES),
            fenced: random.chance(0.1),
            outer,
            names,
            ..Call::of(NAMES[0], 2)
        }
    }

    pub(crate) fn begin(&mut self, id: CallId) {
        let call = self.calls.get(&id).expect("a call");
        if !matches!(call.stage, Stage::Idle) {
            return;
        }
        // A call that a body makes runs where the body runs.
        let (process, holds) = match call.outer {
            Some(outer) => (self.calls[&outer].process, self.chain(Some(outer))),
            None => (self.machines[call.machine], Vec::new()),
        };
        let call = self.calls.get_mut(&id).expect("a call");
        if !self.processes[process].is_there() {
            return self.over(id);
        }
        call.process = process;
        call.stage = Stage::Waiting;
        let acquire = Acquire {
            call: Id(id),
            names: call.names.to_vec(),
            ttl_secs: call.ttl_secs,
            mode: call.mode,
            wait: call.wait,
            record: format!("{{\"call\":{id}}}").into_bytes().into(),
            holds: holds.into_iter().map(Id).collect(),
        };
        let cancelled = call.cancel_after.map(|after| self.now + after);
        self.submit_soon(process, Input::Acquire(acquire));
        if let Some(at) = cancelled {
            self.at(at, Happening::Cancel(id));
        }
    }

    /// Notes what a core now knows of its calls, and of etcd's responses.
    pub(crate) fn note_input(&mut self, n: usize, input: &Input) {
        let (id, comes) = match input {
            Input::Acquire(acquire) => (acquire.call, true),
            Input::Cancel(id) | Input::Release { call: id, .. } => (*id, false),
            Input::Answer { result: Ok(Response::Txn(answer)), .. } => {
                return self.processes[n].heard.push(answer.revision.get());
            }
            _ => return,
        };
        self.submitted += u64::from(comes);
        let call = self.calls.get_mut(&id.0).expect("a call");
        call.given_up &= !matches!(input, Input::Cancel(_));
        let (rank, heard) = (Some(self.submitted), self.processes[n].heard.len());
        match comes {
            true => (call.known, call.heard) = (rank, heard),
            false => call.left = rank,
        }
    }

    /// Returns the calls whose locks a task holds, given the innermost one.
    pub(crate) fn chain(&self, innermost: Option<CallId>) -> Vec<CallId> {
        std::iter::successors(innermost, |call| self.calls[call].outer).collect()
    }

    pub(crate) fn cancel(&mut self, id: CallId) {
        let call = self.calls.get(&id).expect("a call");
        let process = call.process;
        if matches!(call.stage, Stage::Waiting) {
            self.over(id);
            self.calls.get_mut(&id).expect("a call").given_up = true;
            self.submit_soon(process, Input::Cancel(Id(id)));
        }
    }

    /// Ends the work of a body. It is dropped once the call that it made is over.
    pub(crate) fn end_body(&mut self, id: CallId) {
        let call = self.calls.get_mut(&id).expect("a call");
        let inner = call.inner;
        call.due = true;
        let open = |inner: &CallId| !matches!(self.calls[inner].stage, Stage::Idle | Stage::Done);
        if !inner.as_ref().is_some_and(open) {
            self.drop_body(id);
        }
    }

    /// Drops a body, after those that run inside it.
    pub(crate) fn drop_body(&mut self, id: CallId) {
        let call = self.calls.get(&id).expect("a call");
        if !matches!(call.stage, Stage::Holding(_)) {
            return;
        }
        if let Some(inner) = call.inner {
            match self.calls[&inner].stage {
                Stage::Idle | Stage::Releasing => self.over(inner),
                Stage::Waiting => self.cancel(inner),
                Stage::Holding(_) => {
                    self.drop_body(inner);
                    self.over(inner);
                }
                Stage::Done => {}
            }
        }
        let call = self.calls.get_mut(&id).expect("a call");
        if !matches!(call.stage, Stage::Holding(_)) {
            return; // the end of the inner call has ended this one
        }
        let (process, how, fenced) = (call.process, call.how, call.fenced);
        call.stage = Stage::Releasing;
        self.holding.remove(&id);
        self.progress = self.now;
        let release = Input::Release { call: Id(id), how, fenced };
        if how != Release::Confirmed || !self.processes[process].is_there() {
            self.over(id);
        }
        self.submit_soon(process, release);
    }

    /// Ends a call. The body that made it continues.
    fn over(&mut self, id: CallId) {
        let call = self.calls.get_mut(&id).expect("a call");
        call.stage = Stage::Done;
        self.holding.remove(&id);
        self.progress = self.now;
        if let Some(outer) = call.outer
            && self.calls[&outer].due
        {
            self.at(self.now, Happening::Drop(outer));
        }
    }

    /// Removes a crashed process, whose work has no further effect.
    pub(crate) fn bury(&mut self, process: usize) {
        let its = |call: &&mut Call| {
            call.process == process && !matches!(call.stage, Stage::Idle | Stage::Done)
        };
        for call in self.calls.values_mut().filter(its) {
            call.stage = Stage::Done;
        }
        let calls = &self.calls;
        self.holding.retain(|id| matches!(calls[id].stage, Stage::Holding(_)));
    }

    /// Takes in an output of a core.
    pub(crate) fn take(&mut self, n: usize, output: Output) {
        match output {
            Output::Granted(grant) => self.granted(grant),
            Output::Refused { call, why } => {
                let id = call.0;
                let call = &self.calls[&id];
                let stage = &call.stage;
                // A call that was cancelled while its process slept still gets its result.
                if call.given_up {
                    return;
                }
                let waits = matches!(stage, Stage::Waiting);
                must!(Truth, waits, "call {id} gets a result in {stage:?}");
                let denied = matches!(why, Refused::PermissionDenied(_));
                let forbidden = |name: &Key| {
                    **name == *FORBIDDEN || self.denied.iter().any(|word| name.contains(word))
                };
                let may = !call.names.iter().any(forbidden);
                must!(Truth, !(denied && may), "call {id} is denied keys that it may use");
                self.check_refusal(id, &why);
                if let Refused::Deadlock { .. } = why {
                    self.check_deadlock(id);
                }
                self.calls.get_mut(&id).expect("a call").left = Some(self.submitted);
                self.over(id);
            }
            Output::Lost { call, cause } => self.lost(n, call.0, cause),
            Output::Released { call, .. } => {
                let id = call.0;
                let Call { stage, how, .. } = &self.calls[&id];
                let orphaned = matches!(stage, Stage::Done) && *how == Release::Confirmed;
                let releases = orphaned || matches!(stage, Stage::Releasing);
                must!(Truth, releases, "call {id} is released in {stage:?}");
                self.over(id);
            }
            Output::Finished => {
                let process = &mut self.processes[n];
                must!(Truth, !process.finished, "finished twice");
                process.finished = true;
                process.watches.clear();
                // Its engine is gone, and refuses the calls that wait.
                for (id, call) in self.calls.iter().filter(|(_, c)| c.process == n) {
                    let waits = call.known.is_some() && matches!(call.stage, Stage::Waiting);
                    must!(Progress, !waits, "finished while call {id} waits");
                }
                self.clear_up();
            }
            Output::Send { id, request } => self.send(n, id, request),
            Output::Watch { id, prefix, from, puts } => self.watch(n, id, prefix, puts, from.get()),
            Output::Unwatch(id) => drop(self.processes[n].watches.remove(&id)),
            Output::Crowded(_) | Output::Bounded | Output::Ready(..) => {}
        }
    }

    fn granted(&mut self, grant: Grant) {
        let (id, now) = (grant.call.0, self.now);
        let call = &self.calls[&id];
        if call.given_up {
            // The caller is gone while its grant is on the way, so the lock is released (rule P26).
            let (process, fenced) = (call.process, false);
            let release = Input::Release { call: Id(id), how: Release::Unconfirmed, fenced };
            return self.at(now, Happening::Submit { to: process, input: release });
        }
        let stage = &call.stage;
        must!(Truth, matches!(stage, Stage::Waiting), "call {id} gets a result in {stage:?}");
        let keys: Vec<_> = grant.owned.iter().map(|o| &*o.key).collect();
        let asked = call.names.len() == keys.len()
            && call.names.iter().zip(&keys).all(|(name, key)| {
                key.strip_prefix(&**name).is_some_and(|rest| rest.starts_with('/'))
            });
        must!(Truth, asked, "call {id} wants {:?} and gets {keys:?}", call.names);
        // Readers may join several keys, which differ in age.
        let one_rank = call.mode == Mode::Shared
            || grant.owned.iter().all(|o| o.created == grant.owned[0].created);
        must!(Truth, one_rank, "the keys of call {id} were not put together: {:?}", grant.owned);
        let overtaken = self.calls.values().find(|other| {
            other.process == call.process
                && matches!(other.stage, Stage::Waiting)
                && other.known.is_some_and(|at| Some(at) < call.known)
                && call.names.iter().any(|name| other.names.contains(name))
        });
        // A nested call that has waited for a second has its own key.
        let by_itself = |o: &OwnedKey| {
            let nested = matches!(Seat::of_key(o.key.as_bytes()), Seat::Nested { .. });
            nested && o.handover == 0
        };
        let overtaken = overtaken.filter(|_| !grant.owned.iter().any(by_itself));
        must!(Order, overtaken.is_none(), "call {id} overtakes {overtaken:?} in its process");
        for (name, owned) in call.names.iter().zip(&grant.owned) {
            if self.tainted.contains(&incarnation(owned)) {
                continue;
            }
            let token = (owned.revision.get(), owned.handover);
            let (highest, lone) = self.tokens.entry(name.clone()).or_default();
            let is_alone = call.mode == Mode::Exclusive;
            let last = if is_alone { *highest } else { *lone };
            must!(I3, last < Some(token), "{name}'s token {token:?} follows {last:?}");
            *highest = (*highest).max(Some(token));
            *lone = if is_alone { Some(token) } else { *lone };
            self.check_admission(id, call, name, owned);
        }
        if call.mode != Mode::Exclusive {
            self.tally.count(Happened::Together);
        }
        self.tally.count(Happened::Served);
        if grant.owned[0].handover > 0 {
            self.tally.count(Happened::HandedOver);
        }
        self.progress = now;
        self.holding.insert(id);
        let (hold, inner) = (call.hold, call.inner);
        let clock = self.processes[self.calls[&id].process].clock;
        let stop = grant.deadline.stop().map(|stop| clock.when(stop));
        let stop = stop.filter(|stop| *stop > now);
        must!(I2, stop.is_some(), "call {id} is granted under a lease that is over");
        let body = Body { stop: stop.unwrap_or(now), grant, lost: None, over: false, early: false };
        let call = self.calls.get_mut(&id).expect("a call");
        call.stage = Stage::Holding(body);
        let to = call.process;
        self.at(now + hold, Happening::End(id));
        // A call that holds until it is ended belongs to a scenario.
        if hold < Duration::MAX && self.random.chance(0.02) {
            let at = now + self.random.micros(0, hold.as_micros() as u64 + 1);
            self.at(at, Happening::Submit { to, input: Input::Kick(Id(id)) });
        }
        if let Some(inner) = inner {
            let at = now + self.random.micros(0, hold.as_micros() as u64 + 1);
            self.at(at, Happening::Call(inner));
        }
    }

    /// Checks that no older key at etcd excludes a call, and that a reader that joins does not overtake keys known to wait.
    fn check_admission(&self, id: CallId, call: &Call, name: &Key, owned: &OwnedKey) {
        let older = self.store.below(name).filter(|kv| kv.create_revision < owned.created);
        let admitted = admits(call.mode, older.clone().map(|kv| &*kv.key));
        let older = older.map(|kv| String::from_utf8_lossy(&kv.key)).collect::<Vec<_>>();
        must!(Order, admitted, "call {id} is granted {owned:?} behind {older:?}");
        if call.mode != Mode::Shared || owned.handover == 0 {
            return;
        }
        let fair = self.peaceful && self.faults.slow == 0.0;
        let late = if fair { JOINS } else { JOINS_LATE };
        let waits = |kv: &&Kv| {
            let since = self.times.range(kv.create_revision.get()..).next();
            let long = since.is_some_and(|(_, at)| self.now - *at > late);
            let excluded = call.mode.is_excluded_by(Seat::of_key(&kv.key));
            // A key of its own process is about to go, or a call there is overtaken, which is checked above.
            let own = self.process_of(kv) == Some(call.process);
            long && excluded && !own && kv.create_revision > owned.created
        };
        let overtaken = self.store.below(name).find(waits);
        let none = overtaken.is_none();
        must!(Order, none, "call {id} joins {owned:?} and overtakes {overtaken:?}");
    }

    fn lost(&mut self, n: usize, id: CallId, cause: LossCause) {
        let (now, was_reset) = (self.now, self.was_reset > self.now);
        let call = self.calls.get_mut(&id).expect("a call");
        let Stage::Holding(body) = &mut call.stage else {
            // Its release is under way to a core that slept.
            let asleep = self.processes[n].asleep >= now;
            must!(Truth, asleep, "call {id} loses a lock it does not hold: {cause:?}");
            return;
        };
        if body.lost.is_some() {
            must!(Truth, cause == LossCause::Shutdown, "call {id} loses its lock twice");
            return;
        }
        body.lost = Some(cause);
        if cause == LossCause::Kicked {
            self.tally.count(Happened::Kicked);
        }
        let at = now + call.reluctance;
        let owned = &body.grant.owned;
        let is_gone = |it: Incarnation| !self.store.has(&it) || self.tainted.contains(&it);
        let no_key = || owned.iter().map(incarnation).any(is_gone);
        let no_lease = || {
            let left = self.store.leases();
            was_reset || !left.iter().any(|lease| lease_of(&owned[0].key) == Some(*lease))
        };
        let sound = match cause {
            LossCause::Overwritten => no_key(),
            LossCause::Wiped => no_lease(),
            LossCause::Gone => no_key() || no_lease(),
            _ => true,
        };
        must!(Truth, sound, "call {id} loses its lock for a wrong cause: {cause:?}");
        self.at(at, Happening::Drop(id));
    }
}

pub(crate) fn incarnation(owned: &OwnedKey) -> Incarnation {
    (owned.key.as_bytes().to_vec(), owned.created)
}
