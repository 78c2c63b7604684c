//! Calls of the bench, their bodies, and the answers they get.

use std::num::NonZeroU16;
use std::time::Duration;

use super::bench::{Bench, Happening};
use super::etcd::{Incarnation, contends};
use super::nemesis::lease_of;
use super::tally::Happened;
use super::view;
use super::violation::must;
use crate::world::CallId;
use etcd_locked_core::{
    Acquire, Grant, Input, Key, Kv, LossCause, Mode, Moment, Output, OwnedKey, Refused, Release,
    Seat, Wait, admits,
};

/// The last one may not be written.
pub(crate) const NAMES: [&str; 4] = ["locks/a", "locks/b", "locks/a/c", FORBIDDEN];
pub(crate) const FORBIDDEN: &str = "locks/forbidden";

/// What the calls of a schedule are like.
#[derive(Debug)]
pub(crate) struct Crowd {
    /// How many of the names are used.
    pub(crate) names: u64,
    /// Bodies are short, so that keys are put, deleted and put again all the time.
    pub(crate) hasty: bool,
    /// How many ask for several names.
    pub(crate) groups: f64,
    /// How many bodies ask for another name.
    pub(crate) nested: f64,
    /// They do so in any order, and so come to wait for each other.
    pub(crate) inverted: bool,
    /// No call gives up before its wait is over.
    pub(crate) patient: bool,
    /// How many leave their names locked for longer than their bodies run.
    pub(crate) keepers: f64,
    /// How many share, and how many ask for one of a few permits.
    pub(crate) shared: f64,
    pub(crate) permits: f64,
}

/// One call of `lock(..)` and its body.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) machine: usize,
    /// The process it runs in.
    pub(crate) process: usize,
    pub(crate) names: Vec<Key>,
    pub(crate) mode: Mode,
    pub(crate) ttl_secs: i64,
    pub(crate) wait: Wait,
    pub(crate) cancel_after: Option<Duration>,
    pub(crate) hold: Duration,
    /// How long the body goes on after a loss: a poll that is under way.
    pub(crate) reluctance: Duration,
    pub(crate) how: Release,
    pub(crate) fenced: bool,
    pub(crate) at_least: Option<Duration>,
    /// The call whose body makes it, and the one its own body makes.
    pub(crate) outer: Option<CallId>,
    pub(crate) inner: Option<CallId>,
    /// Its own work is done; it waits for the inner call.
    pub(crate) due: bool,
    /// Its rank among the calls submitted; and whether its caller has gone and the core does not know yet.
    pub(crate) known: Option<u64>,
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

/// Mostly they agree on a number.
const PERMITS: [u16; 24] = [2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3];

/// How long readers may join the holders before a key that waits: a read's age, and its way back.
const JOINS: Duration = Duration::from_millis(50 + 4);
const JOINS_LATE: Duration = Duration::from_secs(15);

/// A process may find out so late that etcd was wiped, and give up what it has got since.
const NOTICED: Duration = Duration::from_secs(15);

const RELEASES: [Release; 3] = [Release::Confirmed, Release::Unconfirmed, Release::Lingering];

impl Default for Call {
    /// One that waits for ever, and was not made yet.
    fn default() -> Self {
        Self {
            machine: 0,
            process: 0,
            names: Vec::new(),
            mode: Mode::Exclusive,
            ttl_secs: 2,
            wait: Wait::Forever,
            cancel_after: None,
            hold: Duration::ZERO,
            reluctance: Duration::ZERO,
            how: Release::Confirmed,
            fenced: false,
            at_least: None,
            outer: None,
            inner: None,
            due: false,
            known: None,
            given_up: false,
            stage: Stage::Idle,
        }
    }
}

impl Call {
    /// Whether its core has refused it in time.
    fn waits_about(&self, waited: Duration) -> bool {
        matches!(self.wait, Wait::For(wait) if waited < wait + Duration::from_secs(2))
    }

    /// True where it wants several names, and its task holds nothing: it may go to the end of its queues without being refused.
    pub(crate) fn may_step_back(&self) -> bool {
        self.names.len() > 1 && self.outer.is_none() && self.wait != Wait::Once
    }
}

/// A body that runs.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) grant: Grant,
    /// The core has said that it must not be polled.
    pub(crate) stopped: bool,
    /// The core has said that its lock is lost.
    pub(crate) lost: Option<LossCause>,
    /// Its deadline has said so; and whether before its time.
    pub(crate) over: bool,
    pub(crate) early: bool,
    /// The deadline as it last was.
    pub(crate) stop: Moment,
    pub(crate) since: Moment,
}

impl Bench {
    /// Plans a random call; answers how many ids it took.
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
        // Some give up about when a cycle is looked for, or cut.
        if crowd.inverted {
            inner.wait = match self.random.chance(0.4) {
                true => Wait::Forever,
                false => Wait::For(self.random.millis(1900, 2700)),
            };
        }
        let Some(outer) = self.calls.get_mut(&id) else {
            return 1;
        };
        // Tasks that take names in another order deadlock, and one must be refused; most need not.
        let last = &outer.names[outer.names.len() - 1];
        let mut names = inner.names.iter();
        let unfit = match crowd.inverted {
            true => names.any(|name| outer.names.contains(name)),
            false => names.any(|name| name <= last),
        };
        if unfit {
            return 1;
        }
        outer.inner = Some(id + 1);
        self.calls.insert(id + 1, inner);
        2
    }

    /// Plans a call that waits for ever, and whose body ends by hand.
    pub(crate) fn plan_one(
        &mut self,
        id: CallId,
        machine: usize,
        name: &str,
        mode: Mode,
        ttl_secs: i64,
    ) {
        let call = Call {
            machine,
            names: vec![name.into()],
            mode,
            ttl_secs,
            hold: Duration::MAX,
            reluctance: Duration::MAX,
            ..Call::default()
        };
        self.calls.insert(id, call);
    }

    /// Plans a call in each process that leaves its name locked when it is over.
    pub(crate) fn plan_keepers(&mut self) {
        let first = self.calls.last_key_value().map_or(0, |(id, _)| id + 1);
        self.progress = self.now;
        for machine in 0..self.machines.len() {
            let (id, random) = (first + machine as u64, &mut self.random);
            let name = random.one(&NAMES[..3]);
            let (hold, at_least) = (random.millis(0, 60), random.millis(2000, 7000));
            let how = random.one(&RELEASES);
            self.plan_one(id, machine, name, Mode::Exclusive, 2);
            let call = self.calls.get_mut(&id).expect("a call");
            (call.hold, call.how, call.at_least) = (hold, how, Some(at_least));
            call.reluctance = Duration::ZERO;
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
        let at_least = random.chance(crowd.keepers).then(|| {
            let most = if random.chance(0.5) { 7000 } else { 500 };
            random.millis(0, most)
        });
        // Drawn only where it may be another, so that the other schedules stay what they are.
        let mode = match () {
            () if crowd.shared > 0.0 && random.chance(crowd.shared) => Mode::Shared,
            () if crowd.permits > 0.0 && random.chance(crowd.permits) => {
                let number = random.one(&PERMITS);
                NonZeroU16::new(number).map_or(Mode::Exclusive, Mode::Permits)
            }
            () => Mode::Exclusive,
        };
        let at_least = at_least.filter(|_| mode != Mode::Shared);
        Call {
            machine: random.below(self.machines.len() as u64) as usize,
            names,
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
            at_least,
            outer,
            ..Call::default()
        }
    }

    pub(crate) fn begin(&mut self, id: CallId) {
        let now = self.now;
        let call = self.calls.get(&id).expect("a call");
        if !matches!(call.stage, Stage::Idle) {
            return;
        }
        // What a body calls runs where the body runs.
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
            call: id.into(),
            names: call.names.iter().cloned().map(Into::into).collect(),
            ttl_secs: call.ttl_secs,
            mode: call.mode,
            wait: call.wait,
            record: format!("{{\"call\":{id}}}").into_bytes().into(),
            holds: holds.into_iter().map(Into::into).collect(),
        };
        let cancel_after = call.cancel_after;
        self.submit_soon(process, Input::Acquire(acquire));
        if let Some(after) = cancel_after {
            self.at(now + after, Happening::Cancel(id));
        }
    }

    /// A core gets to know what its calls want.
    pub(crate) fn note_input(&mut self, input: &Input) {
        match input {
            Input::Acquire(acquire) => {
                self.submitted += 1;
                self.calls.get_mut(&acquire.call.get()).expect("a call").known =
                    Some(self.submitted);
            }
            Input::Cancel(call) => {
                self.calls.get_mut(&call.get()).expect("a call").given_up = false;
            }
            _ => {}
        }
    }

    /// The calls whose locks a task holds, the innermost of which is given.
    pub(crate) fn chain(&self, innermost: Option<CallId>) -> Vec<CallId> {
        std::iter::successors(innermost, |call| self.calls[call].outer).collect()
    }

    pub(crate) fn cancel(&mut self, id: CallId) {
        let call = self.calls.get(&id).expect("a call");
        let process = call.process;
        if matches!(call.stage, Stage::Waiting) {
            self.goes_unnoticed(process);
            self.over(id);
            self.calls.get_mut(&id).expect("a call").given_up = true;
            self.submit_soon(process, Input::Cancel(id.into()));
        }
    }

    /// The body has done its work: it ends once the call it made has.
    pub(crate) fn end_body(&mut self, id: CallId) {
        let call = self.calls.get_mut(&id).expect("a call");
        // A body that is not polled does no work: it ends once its core has said how its lock was lost.
        if matches!(&call.stage, Stage::Holding(body) if body.stopped) {
            return;
        }
        let inner = call.inner;
        call.due = true;
        let open = |inner: &CallId| !matches!(self.calls[inner].stage, Stage::Idle | Stage::Done);
        if !inner.as_ref().is_some_and(open) {
            self.drop_body(id);
        }
    }

    /// The body is dropped, and before it what runs in it.
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
            return; // the end of the inner call was its own
        }
        let (process, how, fenced) = (call.process, call.how, call.fenced);
        if let Stage::Holding(body) = std::mem::replace(&mut call.stage, Stage::Releasing) {
            let since = body.since;
            self.keeps(id, process, &body, since);
        }
        self.holding.remove(&id);
        self.progress = self.now;
        let release = Input::Release { call: id.into(), how, fenced };
        if how != Release::Confirmed || !self.processes[process].is_there() {
            self.over(id);
        }
        self.submit_soon(process, release);
    }

    /// The call is over: the body that made it goes on.
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

    /// Nothing comes any more of what a crashed process did.
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

    /// Takes what a core has for its calls.
    pub(crate) fn take(&mut self, n: usize, output: Output) {
        match output {
            Output::Granted(grant) => self.granted(grant),
            Output::Refused { call, why } => {
                let id = call.get();
                let call = &self.calls[&id];
                let stage = &call.stage;
                // A call that was given up while its process slept is answered all the same.
                if call.given_up {
                    return;
                }
                must!(
                    Truth,
                    matches!(stage, Stage::Waiting),
                    "call {id} is answered though {stage:?}"
                );
                let denied = matches!(why, Refused::PermissionDenied(_));
                let forbidden = |name: &Key| {
                    **name == *FORBIDDEN || self.denied.iter().any(|word| name.contains(word))
                };
                let may = !call.names.iter().any(forbidden);
                must!(Truth, !(denied && may), "call {id} is denied what it may have");
                let process = call.process;
                match why {
                    Refused::Deadlock { .. } => self.check_deadlock(id),
                    Refused::Timeout { waited, .. } if call.waits_about(waited) => {}
                    // No other process has had the time to follow it.
                    Refused::Held { .. } | Refused::PermissionDenied(_) => {}
                    _ => self.goes_unnoticed(process),
                }
                self.over(id);
            }
            Output::Stopped(call) => {
                let stage = self.calls.get_mut(&call.get()).map(|call| &mut call.stage);
                if let Some(Stage::Holding(body)) = stage {
                    must!(Truth, !body.stopped, "call {call} is stopped twice");
                    body.stopped = true;
                }
            }
            Output::Lost { call, cause } => self.lost(n, call.get(), cause),
            Output::Released { call, .. } => {
                let id = call.get();
                let stage = &self.calls[&id].stage;
                let orphaned =
                    matches!(stage, Stage::Done) && self.calls[&id].how == Release::Confirmed;
                must!(
                    Truth,
                    orphaned || matches!(stage, Stage::Releasing),
                    "call {id} is released though {stage:?}"
                );
                self.over(id);
            }
            Output::Finished => {
                let process = &mut self.processes[n];
                must!(Truth, !process.finished, "finished twice");
                process.finished = true;
                process.watches.clear();
                self.check_retained_after(n);
                // Its engine is gone, and refuses what still waits.
                for (id, call) in self.calls.iter().filter(|(_, c)| c.process == n) {
                    must!(
                        Progress,
                        !(call.known.is_some() && matches!(call.stage, Stage::Waiting)),
                        "finished while call {id} waits"
                    );
                }
                self.clear_up();
            }
            Output::Send { .. }
            | Output::Watch { .. }
            | Output::Unwatch(..)
            | Output::Ready(..) => {}
        }
    }

    fn granted(&mut self, grant: Grant) {
        let (id, now) = (grant.call.get(), self.now);
        let call = &self.calls[&id];
        if call.given_up {
            // A grant on its way to a caller that has gone: it goes back (rule P26).
            let (process, fenced) = (call.process, false);
            let release = Input::Release { call: id.into(), how: Release::Unconfirmed, fenced };
            return self.at(now, Happening::Submit { to: process, input: release });
        }
        let stage = &call.stage;
        must!(Truth, matches!(stage, Stage::Waiting), "call {id} is answered though {stage:?}");
        let keys: Vec<_> = grant.owned.iter().map(|o| &*o.key).collect();
        let asked = call.names.len() == keys.len()
            && call.names.iter().zip(&keys).all(|(name, key)| {
                key.strip_prefix(&**name).is_some_and(|rest| rest.starts_with('/'))
            });
        must!(Truth, asked, "call {id} asks for {:?} and gets {keys:?}", call.names);
        // Readers join keys as they come.
        let one_rank = call.mode == Mode::Shared
            || grant.owned.iter().all(|o| o.created == grant.owned[0].created);
        must!(Truth, one_rank, "the keys of call {id} were not put together: {:?}", grant.owned);
        let overtaken = self.calls.iter().find(|&(other_id, other)| {
            other.process == call.process
                && matches!(other.stage, Stage::Waiting)
                && other.known.is_some_and(|at| Some(at) < call.known)
                && call.names.iter().any(|name| other.names.contains(name))
                && !self.has_stepped_back(other_id, other.process)
        });
        must!(Order, overtaken.is_none(), "call {id} overtakes {overtaken:?} in its process");
        for (name, owned) in call.names.iter().zip(&grant.owned) {
            if self.tainted.contains(&incarnation(owned)) {
                continue;
            }
            let token = (owned.revision.get(), owned.handover);
            let last = match call.mode {
                Mode::Exclusive => {
                    self.lone_tokens.insert(name.clone(), token);
                    self.tokens.get(name)
                }
                _ => self.lone_tokens.get(name),
            };
            let last = last.copied();
            must!(I3, last < Some(token), "{name}'s token {token:?} follows {last:?}");
            let highest = self.tokens.get(name).copied().unwrap_or_default();
            self.tokens.insert(name.clone(), highest.max(token));
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
        must!(
            I2,
            stop.is_some_and(|stop| stop > now),
            "call {id} is served on a lease that is over"
        );
        let body = Body {
            stop: stop.unwrap_or(now),
            grant,
            stopped: false,
            lost: None,
            over: false,
            early: false,
            since: now,
        };
        let call = self.calls.get_mut(&id).expect("a call");
        call.stage = Stage::Holding(body);
        let (process, at_least) = (call.process, call.at_least);
        if let Some(at_least) = at_least {
            let until = clock.shown(now) + at_least;
            self.submit_soon(process, Input::Keep { call: id.into(), until });
        }
        self.at(now + hold, Happening::End(id));
        if let Some(inner) = inner {
            let at = now + self.random.micros(0, hold.as_micros() as u64 + 1);
            self.at(at, Happening::Call(inner));
        }
    }

    /// No older key at etcd excludes it; and a reader that joins others overtakes no key that they are known to keep waiting.
    fn check_admission(&self, id: CallId, call: &Call, name: &Key, owned: &OwnedKey) {
        let family = format!("{name}/");
        let contends = |kv: &&Kv| contends(&family, &kv.key);
        let older = self.store.kvs().filter(contends);
        let older = older.filter(|kv| kv.create_revision < owned.created);
        let older: Vec<&[u8]> = older.map(|kv| &*kv.key).collect();
        must!(
            Order,
            admits(call.mode, older.iter().copied()),
            "call {id} is granted {} of {} behind {:?}",
            owned.key,
            owned.created,
            older.iter().map(|key| String::from_utf8_lossy(key)).collect::<Vec<_>>()
        );
        if call.mode != Mode::Shared || owned.handover == 0 {
            return;
        }
        let fair = self.peaceful && self.faults.slow == 0.0;
        let late = if fair { JOINS } else { JOINS_LATE };
        let waits = |kv: &&Kv| {
            let since = self.times.range(kv.create_revision.get()..).next();
            let long = since.is_some_and(|(_, at)| self.now - *at > late);
            let excluded = call.mode.is_excluded_by(Seat::of_key(&kv.key));
            // A key of its own process is going, or one of its calls is overtaken, which is seen above.
            let own = self.process_of(kv) == Some(call.process);
            let excluded = excluded && !own;
            long && excluded && contends(kv) && kv.create_revision > owned.created
        };
        let overtaken = self.store.kvs().find(waits);
        must!(
            Order,
            overtaken.is_none(),
            "call {id} joins {} of {} and overtakes {overtaken:?}",
            owned.key,
            owned.created
        );
    }

    /// Whether a group has let others by that waited for it in a cycle (rule P38).
    fn has_stepped_back(&self, id: &CallId, process: usize) -> bool {
        view::requeued(&self.processes[process].core, *id)
    }

    fn lost(&mut self, n: usize, id: CallId, cause: LossCause) {
        let now = self.now;
        self.goes_unnoticed(n);
        let call = self.calls.get_mut(&id).expect("a call");
        let Stage::Holding(body) = &mut call.stage else {
            // Its release is on the way to a core that was asleep.
            let asleep = self.processes[n].asleep >= now;
            must!(Truth, asleep, "call {id} loses what it does not have: {cause:?}");
            return;
        };
        must!(Truth, body.lost.is_none(), "call {id} loses twice");
        body.lost = Some(cause);
        let at = now + call.reluctance;
        let owned = &body.grant.owned;
        let sound = match cause {
            LossCause::Deleted | LossCause::Overwritten => owned.iter().any(|owned| {
                let (key, created) = incarnation(owned);
                let there = self.store.kv(&key);
                there.is_none_or(|kv| kv.create_revision != created)
                    || self.tainted.contains(&(key, created))
            }),
            // A lagging member may mistake the one for the other.
            LossCause::Wiped | LossCause::Revoked => {
                let left = self.store.leases();
                !left
                    .iter()
                    .any(|lease| lease_of(&owned[0].key) == Some(*lease))
                    || self.restored // a process that finds out gives up all it has
                    || self.wiped.is_some_and(|at| self.now < at + NOTICED)
            }
            _ => true,
        };
        must!(Truth, sound, "call {id} has lost by {cause:?}, and that is not so");
        self.at(at, Happening::Drop(id));
    }
}

pub(crate) fn incarnation(owned: &OwnedKey) -> Incarnation {
    (owned.key.as_bytes().to_vec(), owned.created)
}
