//! Bench: some processes, one etcd, a clock, and a network between them. A seed decides everything that happens.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::clients::Call;
use super::crowds::name_of;
use super::drift::Drift;
use super::etcd::{Etcd, Incarnation, Snapshot, Space, settings, unknown};
use super::faults::Faults;
use super::random::Random;
use super::tally::{Happened, Tally};
use super::trace::{Trace, brief};
use super::transport::Transport;
use super::view;
use super::violation::must;
use crate::world::{CallId, Revision};
use etcd_locked_core::{
    Core, Event, Failure, Input, Key, LeaseId, Moment, Output, Request, RequestId, Response, Seat,
    Settings, WatchId,
};

/// An input with more outputs than this, or a seed with more steps than this, is taken for an endless loop.
const OUTPUTS: usize = 20_000;
const STEPS: u64 = 1_000_000;

/// A fencing token: the revision of its key, and the number of hand-overs.
type Token = (Revision, u16);

#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) now: Moment,
    pub(crate) random: Random,
    pub(crate) faults: Faults,
    pub(crate) tally: Tally,
    pub(crate) processes: Vec<Process>,
    /// The process that now runs on each machine.
    pub(crate) machines: Vec<usize>,
    pub(crate) store: Etcd,
    /// Until this moment etcd has no leader.
    pub(crate) leaderless: Moment,
    pub(crate) calls: BTreeMap<CallId, Call>,
    /// The number of calls submitted to cores.
    pub(crate) submitted: u64,
    /// The calls that have a body.
    pub(crate) holding: BTreeSet<CallId>,
    /// The process to which each lease was granted.
    pub(crate) owners: BTreeMap<LeaseId, usize>,
    /// Incarnations that an operator changed. Their holders may overlap with the next ones until their cores notice.
    pub(crate) tainted: BTreeSet<Incarnation>,
    /// Until this moment a process may notice that etcd was wiped or restored, and lose everything.
    pub(crate) was_reset: Moment,
    /// The keys that were denied for a while.
    pub(crate) denied: BTreeSet<&'static str>,
    /// The last token of each name, and the last one of an exclusive holder.
    pub(crate) tokens: BTreeMap<Key, (Option<Token>, Option<Token>)>,
    /// When etcd reached each revision.
    pub(crate) times: BTreeMap<Revision, Moment>,
    /// The key of each family, lease and seat.
    pub(crate) keys: BTreeMap<(Vec<u8>, LeaseId, Seat), Key>,
    pub(crate) trace: Trace,
    /// The messages under way, if a search decides what arrives when.
    pub(crate) by_hand: Option<Vec<Message>>,
    /// Calls whose abort etcd has carried out, and whose cores have no response yet.
    pub(crate) cut: BTreeSet<CallId>,
    /// Nothing goes wrong, except that messages may be a little late.
    pub(crate) peaceful: bool,
    /// The invariants are checked once in this number of steps; 0: never.
    pub(crate) check_every: u64,
    /// The revision up to which watches have received events.
    pub(crate) delivered: Revision,
    /// True if each process has its own clock.
    pub(super) drifts: bool,
    pub(crate) steps: u64,
    /// When a call was last granted, refused or over.
    pub(crate) progress: Moment,
    /// How long faults are injected.
    pub(crate) storm: Duration,
    /// Since when there are no more faults.
    pub(crate) calm: Option<Moment>,
    agenda: BTreeMap<(Moment, u64), Happening>,
    sequence: u64,
    pub(super) seed: u64,
}

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) core: Core,
    pub(crate) transport: Transport,
    pub(crate) clock: Drift,
    /// Until this moment nothing reaches the core, but its bodies run on.
    pub(crate) asleep: Moment,
    /// Until this moment nothing from it reaches etcd; for `deaf`, nothing comes back.
    pub(crate) cut_off: Moment,
    pub(crate) deaf: Moment,
    pub(crate) dead: bool,
    pub(crate) finished: bool,
    /// When the grace period of its shutdown ends, on its own clock.
    pub(crate) grace: Option<Moment>,
    pub(crate) watches: BTreeMap<WatchId, Watch>,
    /// Its last request that reached etcd.
    pub(crate) arrived: RequestId,
    /// The revisions of the transactions whose responses its core has received.
    pub(crate) heard: Vec<Revision>,
}

impl Process {
    pub(crate) fn is_there(&self) -> bool {
        !self.dead && !self.finished
    }
}

#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) prefix: Key,
    pub(crate) puts: bool,
    pub(crate) next: Revision,
    pub(crate) silent: Moment,
    /// When its last event arrives, because events keep their order.
    pub(crate) delivered: Moment,
}

impl Watch {
    /// Returns the events that it has not delivered; `None`: etcd has compacted them.
    pub(crate) fn events(&self, store: &Etcd) -> Option<Vec<Event>> {
        let mut events = store.events(&self.prefix, self.next)?;
        events.retain(|event| self.puts || matches!(event, Event::Delete { .. }));
        Some(events)
    }

    /// Returns the first of these events.
    pub(crate) fn next_event(&self, store: &Etcd) -> Option<Event> {
        self.events(store)?.into_iter().next()
    }
}

#[derive(Debug)]
pub(crate) enum Happening {
    /// A request reaches etcd. Its response, if any, arrives at `back`.
    Arrive {
        from: usize,
        id: RequestId,
        request: Request,
        back: Option<Moment>,
    },
    /// An input reaches a core. While the process sleeps, it is delayed.
    Submit {
        to: usize,
        input: Input,
    },
    /// A call begins; is cancelled; its body has done its work; its body is dropped.
    Call(CallId),
    Cancel(CallId),
    End(CallId),
    Drop(CallId),
    /// A new process starts on a machine.
    Start(usize),
    /// A request no longer arrives.
    Broken,
    Promote,
    /// etcd has room again; its user may write again; etcd is restored from a snapshot.
    Room,
    Allow,
    Restore(Box<Snapshot>),
    /// The sessions of a process end.
    EndSessions(usize),
    Nemesis,
}

/// A message under way.
#[derive(Debug, Clone)]
pub(crate) enum Message {
    Request {
        from: usize,
        id: RequestId,
        request: Request,
        /// True if its sender has given it up.
        given_up: bool,
    },
    Answer {
        to: usize,
        id: RequestId,
        result: Result<Response, Failure>,
    },
}

impl Message {
    /// Returns the process, its request, and whether etcd has responded to it.
    pub(crate) fn order(&self) -> (usize, RequestId, bool) {
        match self {
            Message::Request { from, id, .. } => (*from, *id, false),
            Message::Answer { to, id, .. } => (*to, *id, true),
        }
    }
}

impl Bench {
    pub(crate) fn new(seed: u64, machines: usize, loud: usize) -> Self {
        let start = Moment::after_boot(Duration::from_secs(1000));
        let mut bench = Self {
            now: start,
            faults: Faults::default(),
            tally: Tally::default(),
            random: Random::new(seed),
            processes: Vec::new(),
            machines: (0..machines).collect(),
            store: Etcd::new(),
            leaderless: start,
            calls: BTreeMap::new(),
            submitted: 0,
            holding: BTreeSet::new(),
            owners: BTreeMap::new(),
            tainted: BTreeSet::new(),
            was_reset: start,
            denied: BTreeSet::new(),
            tokens: BTreeMap::new(),
            times: BTreeMap::new(),
            keys: BTreeMap::new(),
            trace: Trace::new(loud),
            by_hand: None,
            cut: BTreeSet::new(),
            peaceful: false,
            check_every: 1,
            delivered: 0,
            drifts: false,
            steps: 0,
            progress: start,
            storm: Duration::ZERO,
            calm: None,
            agenda: BTreeMap::new(),
            sequence: 0,
            seed,
        };
        for _ in 0..machines {
            bench.start();
        }
        bench
    }

    /// Starts a process. Returns its number.
    pub(crate) fn start(&mut self) -> usize {
        let n = self.processes.len();
        let settings = Settings {
            keys_per_session: self.seed.is_multiple_of(3).then_some(1),
            // Queues here are too short for the usual limit of 16, so some seeds use a smaller one.
            near: [0, 1, 16, 16, 16][self.seed as usize % 5],
            defers: n % 2 == 1,
            ..settings(self.seed * 31 + n as u64)
        };
        let clock = self.clock_of(n);
        self.processes.push(Process {
            transport: Transport::new(settings.connect_timeout),
            core: Core::new(settings),
            clock,
            asleep: self.now,
            cut_off: self.now,
            deaf: self.now,
            dead: false,
            finished: false,
            grace: None,
            watches: BTreeMap::new(),
            arrived: RequestId(0),
            heard: Vec::new(),
        });
        n
    }

    pub(crate) fn at(&mut self, when: Moment, happening: Happening) {
        self.sequence += 1;
        self.agenda.insert((when.max(self.now), self.sequence), happening);
    }

    pub(crate) fn forget_nemesis(&mut self) {
        self.agenda.retain(|_, happening| {
            !matches!(happening, Happening::Nemesis | Happening::Restore(_))
        });
    }

    /// Breaks the connections to etcd: what is under way on them does not arrive.
    pub(crate) fn break_connections(&mut self) {
        for happening in self.agenda.values_mut() {
            if let Happening::Arrive { from, id, back, .. } = happening {
                let input = Input::Answer { request: *id, result: Err(unknown()) };
                let answer = Happening::Submit { to: *from, input };
                // If a request expects a response, its failure is scheduled.
                *happening = match back {
                    Some(_) => answer,
                    None => Happening::Broken,
                };
            }
        }
    }

    /// Runs until `done`, at most until `limit`. Returns whether it was done.
    pub(crate) fn run_until(&mut self, limit: Moment, done: impl Fn(&Self) -> bool) -> bool {
        while !done(self) {
            let there = self.processes.iter().enumerate().filter(|(_, p)| p.is_there());
            let tick = there
                .filter_map(|(n, p)| {
                    let due = p.core.next_timeout().into_iter().chain(p.transport.due()).min();
                    let due = p.clock.when(due?);
                    Some((due.max(p.asleep).max(self.now), n))
                })
                .min();
            // Without a leader no lease expires (rule P31).
            let expiry =
                self.store.next_expiry().map_or(limit, |at| at.max(self.leaderless).max(self.now));
            let agenda = self.agenda.first_key_value().map_or(limit, |((at, _), _)| *at);
            let next = agenda.min(expiry).min(tick.map_or(limit, |(at, _)| at));
            if next >= limit {
                self.now = limit;
                return done(self);
            }
            self.now = next;
            self.steps += 1;
            must!(I10, self.steps < STEPS, "the schedule does not end");
            if agenda == next {
                let ((_, order), happening) = self.agenda.pop_first().expect("a happening");
                self.happen(order, happening);
            } else if expiry == next {
                self.store.expire(next);
                let expired = std::mem::take(&mut self.store.removed);
                if !expired.is_empty() {
                    self.tally.count(Happened::LeaseExpired);
                    let keys = expired.iter().map(|(key, _)| String::from_utf8_lossy(key));
                    let words = || format!("leases expire: {:?}", keys.collect::<Vec<_>>());
                    self.trace.note(next, None, words);
                }
            } else if let Some((_, n)) = tick {
                self.submit(n, Input::Tick);
            }
            self.deliver_events();
            if self.steps.is_multiple_of(self.check_every) {
                self.check();
            }
        }
        true
    }

    fn happen(&mut self, order: u64, happening: Happening) {
        match happening {
            Happening::Arrive { from, id, request, back } => self.arrive(from, id, request, back),
            Happening::Submit { to, input } if self.awake(to) => self.submit(to, input),
            Happening::Submit { to, .. } => {
                // Inputs for a process that sleeps keep their order.
                self.agenda.insert((self.processes[to].asleep, order), happening);
            }
            Happening::Call(call) => self.begin(call),
            Happening::Cancel(call) => self.cancel(call),
            Happening::End(call) => self.end_body(call),
            Happening::Drop(call) => self.drop_body(call),
            Happening::Start(machine) => {
                let n = self.start();
                self.machines[machine] = n;
                self.tally.count(Happened::Restarted);
                self.trace.note(self.now, Some(n), || format!("starts on machine {machine}"));
            }
            Happening::Promote => {
                self.store.promote(self.now);
                self.trace.note(self.now, None, || "a new leader".into());
            }
            Happening::Broken => {}
            Happening::Room => self.store.space = Space::Enough,
            Happening::Allow => self.store.denied = None,
            Happening::Restore(snapshot) => self.restore(*snapshot),
            Happening::EndSessions(n) => self.end_sessions(n),
            Happening::Nemesis => self.strike(),
        }
    }

    pub(crate) fn awake(&self, process: usize) -> bool {
        self.processes[process].asleep <= self.now || self.processes[process].dead
    }

    /// Submits an input to a process; if it sleeps, for when it wakes.
    pub(crate) fn submit_soon(&mut self, to: usize, input: Input) {
        self.sequence += 1;
        self.happen(self.sequence, Happening::Submit { to, input });
    }

    pub(crate) fn submit(&mut self, n: usize, mut input: Input) {
        let clock = self.processes[n].clock;
        if let Input::Shutdown { until } = &mut input {
            *until = clock.shown(*until);
            let earlier = self.processes[n].grace.unwrap_or(*until);
            self.processes[n].grace = Some(earlier.min(*until));
        }
        if !self.processes[n].is_there() {
            return;
        }
        if !matches!(input, Input::Tick) {
            self.trace.note(self.now, Some(n), || format!("<- {input:?}"));
        }
        self.note_input(n, &input);
        let now = clock.shown(self.now);
        let transport = &mut self.processes[n].transport;
        if let Input::Answer { request, result } = &mut input {
            transport.end(now, *request, result);
        }
        let probe = transport.probe(now);
        // As in the runtime, a command does not wait for reports of the transport.
        let command = matches!(input, Input::Acquire(_) | Input::Release { .. } | Input::Cancel(_));
        while !command && let Some(news) = self.processes[n].transport.news() {
            self.trace.note(self.now, Some(n), || format!("<- {news:?}"));
            self.step(n, now, news);
        }
        self.step(n, now, input);
        if let Some((id, request)) = probe {
            self.send(n, id, request);
        }
        let process = &mut self.processes[n];
        let waits = process.core.has_waiters() && self.by_hand.is_none();
        process.transport.wait(now, waits);
    }

    fn step(&mut self, n: usize, now: Moment, input: Input) {
        let what = name_of(&input);
        let (before, began) = (view::steps_taken(), Instant::now());
        self.processes[n].core.handle(now, input);
        self.note_cost(n, what, view::steps_taken() - before, began.elapsed());
        let mut outputs = 0;
        while let Some(output) = self.processes[n].core.poll() {
            outputs += 1;
            must!(I10, outputs < OUTPUTS, "too many outputs");
            self.trace.note(self.now, Some(n), || match &output {
                Output::Send { id, request } => format!("-> {}: {}", id.0, brief(request)),
                other => format!("-> {other:?}"),
            });
            self.take(n, output);
        }
    }
}
