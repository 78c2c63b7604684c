//! Some processes, one etcd, a clock and a network between them. The seed decides everything that happens.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::clients::Call;
use super::nemesis::Faults;
use super::random::Random;
use super::store::{Incarnation, Store};
use super::trace::{Trace, brief};
use crate::clock::Moment;
use crate::core::request::{Failure, Key, LeaseId, Request, Response, Revision, WatchNews};
use crate::core::{CallId, Core, Input, Output, RequestId, Settings, WatchId};

/// More outputs than this for one input, or more steps than this for one seed, and something runs in circles.
const OUTPUTS: usize = 200;
const STEPS: usize = 60_000;

#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) now: Moment,
    pub(crate) random: Random,
    pub(crate) faults: Faults,
    pub(crate) processes: Vec<Process>,
    pub(crate) store: Store,
    pub(crate) calls: BTreeMap<CallId, Call>,
    /// Which process a lease was granted to.
    pub(crate) owners: BTreeMap<LeaseId, usize>,
    /// Incarnations an operator laid hands on: their holders may overlap with the next ones until they hear of it.
    pub(crate) tainted: BTreeSet<Incarnation>,
    /// The last token of each name.
    pub(crate) tokens: BTreeMap<Key, Revision>,
    pub(crate) trace: Trace,
    agenda: BTreeMap<(Moment, u64), Happening>,
    sequence: u64,
    steps: usize,
}

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) core: Core,
    /// Until then nothing reaches the core; its bodies run on.
    pub(crate) asleep: Moment,
    /// Until then nothing of it reaches etcd; or nothing comes back.
    pub(crate) unheard: Moment,
    pub(crate) deaf: Moment,
    pub(crate) dead: bool,
    pub(crate) finished: bool,
    pub(crate) watches: BTreeMap<WatchId, Watch>,
}

#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) prefix: Key,
    pub(crate) next: Revision,
    pub(crate) silent: Moment,
    /// News keeps its order.
    pub(crate) delivered: Moment,
}

#[derive(Debug)]
pub(crate) enum Happening {
    /// A request reaches etcd; its answer, if any, is back at that moment.
    Arrive {
        from: usize,
        id: RequestId,
        request: Request,
        back: Option<Moment>,
    },
    Answer {
        to: usize,
        id: RequestId,
        result: Result<Response, Failure>,
    },
    News {
        to: usize,
        watch: WatchId,
        news: WatchNews,
    },
    Tell {
        to: usize,
        input: Input,
    },
    /// The call begins; is given up; its body ends.
    Call(CallId),
    Cancel(CallId),
    Drop(CallId),
    Nemesis,
}

impl Bench {
    pub(crate) fn new(seed: u64, processes: usize, loud: bool) -> Self {
        let core = |n| {
            Core::new(Settings {
                prefix: "locks/".into(),
                connect_timeout: Duration::from_secs(5),
                seed: seed * 31 + n,
            })
        };
        let start = Moment::after_boot(Duration::from_secs(1000));
        let process = |n| Process {
            core: core(n),
            asleep: start,
            unheard: start,
            deaf: start,
            dead: false,
            finished: false,
            watches: BTreeMap::new(),
        };
        let mut random = Random::new(seed);
        Self {
            now: start,
            faults: Faults::drawn(&mut random),
            random,
            processes: (0..processes as u64).map(process).collect(),
            store: Store::new(),
            calls: BTreeMap::new(),
            owners: BTreeMap::new(),
            tainted: BTreeSet::new(),
            tokens: BTreeMap::new(),
            trace: Trace::new(seed, loud),
            agenda: BTreeMap::new(),
            sequence: 0,
            steps: 0,
        }
    }

    pub(crate) fn at(&mut self, when: Moment, happening: Happening) {
        self.sequence += 1;
        self.agenda
            .insert((when.max(self.now), self.sequence), happening);
    }

    pub(crate) fn forget_nemesis(&mut self) {
        self.agenda
            .retain(|_, happening| !matches!(happening, Happening::Nemesis));
    }

    /// Runs until `done`, at most until `limit`; whether it got done.
    pub(crate) fn run_until(&mut self, limit: Moment, done: impl Fn(&Self) -> bool) -> bool {
        while !done(self) {
            let timeouts = self
                .processes
                .iter()
                .enumerate()
                .filter(|(_, p)| !p.dead && !p.finished);
            let tick = timeouts
                .filter_map(|(n, p)| Some((p.core.next_timeout()?.max(p.asleep).max(self.now), n)))
                .min();
            let expiry = self.store.next_expiry().unwrap_or(limit);
            let agenda = self
                .agenda
                .first_key_value()
                .map_or(limit, |((at, _), _)| *at);
            let next = expiry.min(agenda).min(tick.map_or(limit, |(at, _)| at));
            if next >= limit {
                self.now = limit;
                return done(self);
            }
            self.now = next;
            self.steps += 1;
            assert!(self.steps < STEPS, "no end");
            if expiry == next {
                self.store.expire(next);
                self.store.removed.clear();
            } else if agenda == next {
                let (_, happening) = self.agenda.pop_first().expect("a happening");
                self.happen(happening);
            } else if let Some((_, n)) = tick {
                self.tell(n, Input::Tick);
            }
            self.spread_news();
            self.check();
        }
        true
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Arrive {
                from,
                id,
                request,
                back,
            } => self.arrive(from, id, &request, back),
            Happening::Answer { to, id, result } if self.awake(to) => {
                self.tell(
                    to,
                    Input::Answer {
                        request: id,
                        result,
                    },
                );
            }
            Happening::News { to, watch, news } if self.awake(to) => {
                self.tell(to, Input::Watch { watch, news })
            }
            Happening::Tell { to, input } if self.awake(to) => self.tell(to, input),
            Happening::Answer { to, .. }
            | Happening::News { to, .. }
            | Happening::Tell { to, .. } => {
                self.at(self.processes[to].asleep, happening);
            }
            Happening::Call(call) => self.begin(call),
            Happening::Cancel(call) => self.cancel(call),
            Happening::Drop(call) => self.drop_body(call),
            Happening::Nemesis => self.strike(),
        }
    }

    pub(crate) fn awake(&self, process: usize) -> bool {
        self.processes[process].asleep <= self.now || self.processes[process].dead
    }

    /// An input to a process that is awake, or, if it sleeps, for when it wakes.
    pub(crate) fn tell_soon(&mut self, to: usize, input: Input) {
        self.happen(Happening::Tell { to, input });
    }

    fn tell(&mut self, n: usize, input: Input) {
        if self.processes[n].dead || self.processes[n].finished {
            return;
        }
        if !matches!(input, Input::Tick) {
            self.trace.note(self.now, n, || format!("<- {input:?}"));
        }
        if let Input::Acquire(acquire) = &input {
            self.told_of(acquire.call);
        }
        self.processes[n].core.handle(self.now, input);
        let mut outputs = 0;
        while let Some(output) = self.processes[n].core.poll() {
            outputs += 1;
            assert!(outputs < OUTPUTS, "too many outputs");
            self.trace.note(self.now, n, || match &output {
                Output::Send { id, request } => format!("-> {id}: {}", brief(request)),
                other => format!("-> {other:?}"),
            });
            match output {
                Output::Send { id, request } => self.send(n, id, request),
                Output::Watch { id, prefix, from } => {
                    let silent = self.now + self.faults.silence(&mut self.random);
                    let watch = Watch {
                        prefix,
                        next: from,
                        silent,
                        delivered: self.now,
                    };
                    assert!(
                        self.processes[n].watches.insert(id, watch).is_none(),
                        "watch {id} exists"
                    );
                }
                Output::Unwatch { id } => {
                    self.processes[n].watches.remove(&id);
                }
                told => self.told(n, told),
            }
        }
    }
}
