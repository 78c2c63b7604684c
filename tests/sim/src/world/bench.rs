//! Some processes, one etcd, a clock and a network between them. The seed decides everything that happens.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::clients::Call;
use super::drift::Drift;
use super::etcd::{Etcd, Incarnation, Snapshot, Space, settings, unknown};
use super::faults::Faults;
use super::random::Random;
use super::retention::Retained;
use super::tally::{Happened, Tally};
use super::trace::{Trace, brief};
use super::violation::must;
use crate::world::{CallId, Revision};
use etcd_locked_core::{
    Core, Event, Failure, Input, Key, LeaseId, Moment, Output, Request, RequestId, Response, Seat,
    Settings, WatchEvent, WatchId,
};

/// More outputs than this for one input, or more steps than this for one seed, and something runs in cycles.
const OUTPUTS: usize = 20_000;
const STEPS: u64 = 1_000_000;

#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) now: Moment,
    pub(crate) random: Random,
    pub(crate) faults: Faults,
    pub(crate) tally: Tally,
    pub(crate) processes: Vec<Process>,
    /// The process that runs on each machine now.
    pub(crate) machines: Vec<usize>,
    pub(crate) store: Etcd,
    /// Until then etcd has no leader.
    pub(crate) leaderless: Moment,
    pub(crate) calls: BTreeMap<CallId, Call>,
    /// How many calls were submitted to cores.
    pub(crate) submitted: u64,
    /// The calls that have a body.
    pub(crate) holding: BTreeSet<CallId>,
    /// Which process a lease was granted to.
    pub(crate) owners: BTreeMap<LeaseId, usize>,
    /// Incarnations an operator laid hands on: their holders may overlap with the next ones until their cores notice.
    pub(crate) tainted: BTreeSet<Incarnation>,
    /// etcd has come back from a snapshot.
    pub(crate) restored: bool,
    /// When etcd was last wiped.
    pub(crate) wiped: Option<Moment>,
    /// What keys were denied for a while.
    pub(crate) denied: BTreeSet<&'static str>,
    /// The last token of each name.
    pub(crate) tokens: BTreeMap<Key, (Revision, u16)>,
    /// The last token of each name of an exclusive holder.
    pub(crate) lone_tokens: BTreeMap<Key, (Revision, u16)>,
    /// When etcd came to each revision.
    pub(crate) times: BTreeMap<Revision, Moment>,
    /// The key of each family, lease and seat.
    pub(crate) keys: BTreeMap<(Vec<u8>, LeaseId, Seat), Key>,
    /// What calls have left locked, until its time is over.
    pub(crate) retained: Vec<Retained>,
    pub(crate) trace: Trace,
    /// The messages under way, where a search decides what arrives and when.
    pub(crate) by_hand: Option<Vec<Message>>,
    /// Calls in a cycle whose refusal etcd has confirmed, and whose cores have no answer yet.
    pub(crate) cut: BTreeSet<CallId>,
    /// When a call of a process last went although others may still follow its edges.
    pub(crate) unnoticed: BTreeMap<usize, Moment>,
    /// Nothing goes wrong, except that messages may be a little late.
    pub(crate) peaceful: bool,
    /// What must hold is checked at every step.
    pub(crate) is_checked: bool,
    /// Each process has a clock of its own.
    pub(super) drifts: bool,
    pub(crate) steps: u64,
    /// When a call was last served, refused or over.
    pub(crate) progress: Moment,
    /// How long faults are injected.
    pub(crate) storm: Duration,
    /// Since when there are no faults any more.
    pub(crate) calm: Option<Moment>,
    agenda: BTreeMap<(Moment, u64), Happening>,
    sequence: u64,
    pub(super) seed: u64,
}

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) core: Core,
    pub(crate) clock: Drift,
    /// Until then nothing reaches the core; its bodies run on.
    pub(crate) asleep: Moment,
    /// Until then nothing of it reaches etcd; or nothing comes back.
    pub(crate) cut_off: Moment,
    pub(crate) deaf: Moment,
    pub(crate) dead: bool,
    pub(crate) finished: bool,
    /// When the grace of its shutdown ends, on its clock.
    pub(crate) grace: Option<Moment>,
    pub(crate) watches: BTreeMap<WatchId, Watch>,
    /// The last request of it that reached etcd.
    pub(crate) arrived: RequestId,
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
    /// When its last event arrives: events keep their order.
    pub(crate) delivered: Moment,
}

impl Watch {
    /// The events it has not delivered; `None`: etcd has compacted them.
    pub(crate) fn events(&self, store: &Etcd) -> Option<Vec<Event>> {
        let mut events = store.events(&self.prefix, self.next)?;
        events.retain(|event| self.puts || matches!(event, Event::Delete { .. }));
        Some(events)
    }
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
    Event {
        to: usize,
        watch: WatchId,
        news: WatchEvent,
    },
    Submit {
        to: usize,
        input: Input,
    },
    /// The call begins; is given up; its body has done its work; its body is dropped.
    Call(CallId),
    Cancel(CallId),
    End(CallId),
    Drop(CallId),
    /// A new process on a machine.
    Start(usize),
    /// A request that no longer arrives.
    Broken,
    Promote,
    /// etcd has room again; its user may write again; it comes back from a snapshot.
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
        /// Its sender has given it up.
        given_up: bool,
    },
    Answer {
        to: usize,
        id: RequestId,
        result: Result<Response, Failure>,
    },
}

impl Message {
    /// The process, its request, and whether that is answered.
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
            restored: false,
            wiped: None,
            denied: BTreeSet::new(),
            tokens: BTreeMap::new(),
            lone_tokens: BTreeMap::new(),
            times: BTreeMap::new(),
            keys: BTreeMap::new(),
            retained: Vec::new(),
            trace: Trace::new(loud),
            by_hand: None,
            cut: BTreeSet::new(),
            unnoticed: BTreeMap::new(),
            peaceful: false,
            is_checked: true,
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

    /// A process begins; answers which.
    pub(crate) fn start(&mut self) -> usize {
        let n = self.processes.len();
        let core = Core::new(Settings {
            contenders_per_session: self.seed.is_multiple_of(3).then_some(1),
            // There are never as many here as it takes to be far back in a queue.
            near: match self.seed % 5 {
                0 => 0,
                1 => 1,
                _ => 16,
            },
            defers: n % 2 == 1,
            ..settings(self.seed * 31 + n as u64)
        });
        let clock = self.clock_of(n);
        self.processes.push(Process {
            core,
            clock,
            asleep: self.now,
            cut_off: self.now,
            deaf: self.now,
            dead: false,
            finished: false,
            grace: None,
            watches: BTreeMap::new(),
            arrived: 0.into(),
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

    /// The connections to etcd break: what is under way on them does not arrive.
    pub(crate) fn break_connections(&mut self) {
        for happening in self.agenda.values_mut() {
            if let Happening::Arrive { from, id, back, .. } = happening {
                let answer = Happening::Answer { to: *from, id: *id, result: Err(unknown()) };
                // A request without a way back has its failure on the agenda.
                *happening = match back {
                    Some(_) => answer,
                    None => Happening::Broken,
                };
            }
        }
    }

    /// Runs until `done`, at most until `limit`; whether it got done.
    pub(crate) fn run_until(&mut self, limit: Moment, done: impl Fn(&Self) -> bool) -> bool {
        while !done(self) {
            let there = self.processes.iter().enumerate().filter(|(_, p)| p.is_there());
            let tick = there
                .filter_map(|(n, p)| {
                    let due = p.clock.when(p.core.next_timeout()?);
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
            must!(I10, self.steps < STEPS, "no end");
            if agenda == next {
                let ((_, order), happening) = self.agenda.pop_first().expect("a happening");
                self.happen(order, happening);
            } else if expiry == next {
                self.store.expire(next);
                let expired = std::mem::take(&mut self.store.removed);
                if !expired.is_empty() {
                    self.tally.count(Happened::LeaseExpired);
                    self.trace
                        .note(next, None, || format!("leases expire: {}", in_words(&expired)));
                }
            } else if let Some((_, n)) = tick {
                self.submit(n, Input::Tick);
            }
            self.deliver_events();
            if self.is_checked {
                self.check();
            }
        }
        true
    }

    fn happen(&mut self, order: u64, happening: Happening) {
        match happening {
            Happening::Arrive { from, id, request, back } => self.arrive(from, id, request, back),
            Happening::Answer { to, id: request, result } if self.awake(to) => {
                self.submit(to, Input::Answer { request, result });
            }
            Happening::Event { to, watch, news } if self.awake(to) => {
                self.submit(to, Input::Watch { watch, event: news });
            }
            Happening::Submit { to, input } if self.awake(to) => self.submit(to, input),
            Happening::Answer { to, .. }
            | Happening::Event { to, .. }
            | Happening::Submit { to, .. } => {
                // What comes for a process that sleeps keeps its order.
                self.agenda.insert((self.processes[to].asleep, order), happening);
            }
            Happening::Call(call) => self.begin(call),
            Happening::Cancel(call) => self.cancel(call),
            Happening::End(call) => self.end_body(call),
            Happening::Drop(call) => self.drop_body(call),
            Happening::Start(machine) => {
                self.machines[machine] = self.start();
                self.tally.count(Happened::Restarted);
                let n = self.machines[machine];
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

    /// An input to a process that is awake, or, if it sleeps, for when it wakes.
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
        self.note_input(&input);
        let shown = clock.shown(self.now);
        self.processes[n].core.handle(shown, input);
        let mut outputs = 0;
        while let Some(output) = self.processes[n].core.poll() {
            outputs += 1;
            must!(I10, outputs < OUTPUTS, "too many outputs");
            self.trace.note(self.now, Some(n), || match &output {
                Output::Send { id, request } => format!("-> {id}: {}", brief(request)),
                other => format!("-> {other:?}"),
            });
            match output {
                Output::Send { id, request } => self.send(n, id, request),
                Output::Watch { id, prefix, from, puts } => {
                    self.watch(n, id, prefix, puts, from.get())
                }
                Output::Unwatch(id) => {
                    self.processes[n].watches.remove(&id);
                }
                output => self.take(n, output),
            }
        }
    }
}

/// Incarnations in words.
fn in_words(incarnations: &[Incarnation]) -> String {
    let each = incarnations
        .iter()
        .map(|(key, created)| format!("{} of {created}", String::from_utf8_lossy(key)));
    each.collect::<Vec<_>>().join(", ")
}
