//! Stage of the scenarios: processes around one etcd, a network with one delay, and a rule for the fate of each request.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::world::CallId;
use crate::world::Revision;
use crate::world::etcd::{Etcd, Snapshot, revision_of, settings, unavailable, unknown};
use crate::world::violation::{Violation, must};
use etcd_locked_core::LossCause;
use etcd_locked_core::Mode;
use etcd_locked_core::Moment;
use etcd_locked_core::Wait;
use etcd_locked_core::{
    Acquire, Core, Grant, Input, Name, Output, Refused, Release, RequestId, Settings, WatchId,
};
use etcd_locked_core::{Event, Failure, Key, Op, Request, Response, WatchEvent};

/// One way of every message.
const WAY: Duration = Duration::from_micros(500);
/// How long a process waits for an answer, renewals apart.
const PATIENCE: Duration = Duration::from_secs(2);
/// More happenings than this, and a core runs without pause.
const HAPPENINGS: u64 = 5_000_000;
/// The TTL of a call that names none, in seconds.
const TTL: i64 = 9;
/// How long a call of a stage in order may take.
pub(super) const SOON: Duration = Duration::from_secs(5);

/// Plays a scenario, and says in words what it has violated.
pub(super) fn plays(scenario: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(scenario)) {
        panic!("{}", Violation::caught(payload));
    }
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// etcd carries it out and answers.
    Served,
    /// etcd carries it out, and the answer is lost.
    Unanswered,
    /// It never arrives.
    Lost,
    /// No endpoint takes the connection.
    Refused,
}

/// The fate of a request that a process sends.
type Fates = dyn Fn(usize, &Request) -> Fate;

/// How a call asks for its lock.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) names: Vec<String>,
    pub(super) mode: Mode,
    pub(super) ttl_secs: i64,
    pub(super) wait: Wait,
    /// The calls whose locks its task holds.
    pub(super) holds: Vec<CallId>,
    /// How long its body runs; `None`: until the scenario ends it.
    pub(super) hold: Option<Duration>,
    /// For how long its name stays locked from its grant on.
    pub(super) at_least: Option<Duration>,
}

impl Ask {
    pub(super) fn of(name: &str) -> Self {
        Self {
            names: vec![name.into()],
            mode: Mode::Exclusive,
            ttl_secs: TTL,
            wait: Wait::Forever,
            holds: Vec::new(),
            hold: None,
            at_least: None,
        }
    }
}

/// A call, and what has become of it.
#[derive(Debug)]
pub(super) struct Call {
    process: usize,
    names: Vec<Key>,
    hold: Option<Duration>,
    at_least: Option<Duration>,
    asked: Moment,
    pub(super) granted: Option<(Moment, Grant)>,
    pub(super) refused: Option<(Moment, Refused)>,
    stopped: bool,
    pub(super) lost: Option<LossCause>,
    /// Its body is gone.
    dropped: bool,
}

#[derive(Debug)]
struct Process {
    core: Core,
    watches: BTreeMap<WatchId, Watch>,
    /// When it has sent a request, and how many reads that carried.
    sent: Vec<(Moment, usize)>,
    finished: bool,
}

#[derive(Debug)]
struct Watch {
    prefix: Key,
    puts: bool,
    next: Revision,
}

#[derive(Debug)]
enum Happening {
    Arrive { from: usize, id: RequestId, request: Request, answered: bool },
    Submit { to: usize, input: Input },
    End(CallId),
}

pub(super) struct Stage {
    pub(super) now: Moment,
    pub(super) store: Etcd,
    processes: Vec<Process>,
    pub(super) calls: BTreeMap<CallId, Call>,
    agenda: BTreeMap<(Moment, u64), Happening>,
    fate: Box<Fates>,
    /// Up to there watches have their events.
    delivered: Revision,
    sequence: u64,
    happenings: u64,
}

impl Stage {
    pub(super) fn of(processes: usize) -> Self {
        let process = |n| Process {
            core: Core::new(Settings {
                defers: true, // as in production
                ..settings(n as u64 + 1)
            }),
            watches: BTreeMap::new(),
            sent: Vec::new(),
            finished: false,
        };
        let store = Etcd::new();
        Self {
            now: Moment::after_boot(Duration::from_secs(1000)),
            delivered: store.revision(),
            store,
            processes: (0..processes).map(process).collect(),
            calls: BTreeMap::new(),
            agenda: BTreeMap::new(),
            fate: Box::new(|_, _| Fate::Served),
            sequence: 0,
            happenings: 0,
        }
    }

    /// From now on requests of processes fare like this.
    pub(super) fn fate(&mut self, fate: impl Fn(usize, &Request) -> Fate + 'static) {
        self.fate = Box::new(fate);
    }

    pub(super) fn fair(&mut self) {
        self.fate(|_, _| Fate::Served);
    }

    pub(super) fn ask(&mut self, n: usize, ask: Ask) -> CallId {
        let call = self.calls.len() as CallId + 1;
        let names: Vec<Key> = ask.names.iter().map(|name| format!("locks/{name}").into()).collect();
        let known = Call {
            process: n,
            names: names.clone(),
            hold: ask.hold,
            at_least: ask.at_least,
            asked: self.now,
            granted: None,
            refused: None,
            stopped: false,
            lost: None,
            dropped: false,
        };
        self.calls.insert(call, known);
        let acquire = Acquire {
            call: call.into(),
            names: names.iter().map(|name| Name::from(name.clone())).collect(),
            ttl_secs: ask.ttl_secs,
            mode: ask.mode,
            wait: ask.wait,
            record: format!("{{\"call\":{call}}}").into_bytes().into(),
            holds: ask.holds.into_iter().map(Into::into).collect(),
        };
        self.submit(n, Input::Acquire(acquire));
        call
    }

    /// A call that is served soon, and holds until the scenario ends it.
    pub(super) fn take(&mut self, n: usize, name: &str) -> CallId {
        let call = self.ask(n, Ask::of(name));
        self.serve(call);
        call
    }

    /// Runs until a call has its lock, which is soon.
    pub(super) fn serve(&mut self, call: CallId) {
        let served = self.until(SOON, |stage| stage.has(call));
        must!(Progress, served, "call {call} waits: {:?}", self.calls[&call]);
    }

    pub(super) fn cancel(&mut self, call: CallId) {
        let n = self.calls[&call].process;
        self.submit(n, Input::Cancel(call.into()));
    }

    /// The body of a call ends.
    pub(super) fn release(&mut self, call: CallId) {
        let known = self.calls.get_mut(&call).expect("a call");
        if known.granted.is_none() || std::mem::replace(&mut known.dropped, true) {
            return;
        }
        let n = known.process;
        let (how, fenced) = (Release::Unconfirmed, false);
        let call = call.into();
        self.submit(n, Input::Release { call, how, fenced });
    }

    pub(super) fn shut_down(&mut self, n: usize, grace: Duration) {
        let until = self.now + grace;
        self.submit(n, Input::Shutdown { until });
    }

    pub(super) fn is_finished(&self, n: usize) -> bool {
        self.processes[n].finished
    }

    /// The call has been granted, and its body runs.
    pub(super) fn has(&self, call: CallId) -> bool {
        let call = &self.calls[&call];
        call.granted.is_some() && !call.dropped
    }

    /// How long after it was made a call was refused, and why.
    pub(super) fn refusal(&self, call: CallId) -> Option<(Duration, &Refused)> {
        let call = &self.calls[&call];
        let (at, why) = call.refused.as_ref()?;
        Some((*at - call.asked, why))
    }

    /// Requests of a process from then on.
    pub(super) fn requests(&self, n: usize, since: Moment) -> usize {
        let sent = self.processes[n].sent.iter();
        sent.filter(|(at, _)| *at >= since).count()
    }

    /// Reads that those carried.
    pub(super) fn reads(&self, n: usize, since: Moment) -> usize {
        let sent = self.processes[n].sent.iter();
        sent.filter(|(at, _)| *at >= since).map(|(_, reads)| reads).sum()
    }

    /// All keys below a name.
    pub(super) fn keys(&self, name: &str) -> Vec<String> {
        let family = format!("locks/{name}/");
        let keys = self.store.kvs().map(|kv| &kv.key);
        keys.filter(|key| key.starts_with(family.as_bytes()))
            .map(|key| String::from_utf8_lossy(key).into_owned())
            .collect()
    }

    /// etcd comes back from a snapshot.
    pub(super) fn restore(&mut self, snapshot: Snapshot) {
        self.store.restore(self.now, snapshot);
        self.delivered = self.store.revision();
    }

    /// Calls that have a name, as far as their tasks can know.
    pub(super) fn owners(&self, name: &str) -> Vec<CallId> {
        let name = format!("locks/{name}");
        let owns = |call: &Call| {
            let granted = call.granted.as_ref();
            let valid = granted.is_some_and(|(_, grant)| !grant.deadline.is_over(self.now));
            valid && !call.stopped && !call.dropped && call.names.iter().any(|of| **of == *name)
        };
        let calls = self.calls.iter().filter(|(_, call)| owns(call));
        calls.map(|(id, _)| *id).collect()
    }

    pub(super) fn run(&mut self, time: Duration) {
        self.until(time, |_| false);
    }

    /// Runs for so long at most, until this is so; whether it is.
    pub(super) fn until(&mut self, time: Duration, so: impl Fn(&Self) -> bool) -> bool {
        let limit = self.now + time;
        while !so(self) {
            let timeouts = self.processes.iter().enumerate();
            let timeouts = timeouts.filter(|(_, process)| !process.finished);
            let timeout = timeouts
                .filter_map(|(n, process)| Some((process.core.next_timeout()?.max(self.now), n)))
                .min();
            let agenda = self.agenda.keys().next().map(|(at, _)| *at);
            let expiry = self.store.next_expiry().map(|at| at.max(self.now));
            let first = [agenda, expiry, timeout.map(|(at, _)| at)];
            let Some(next) = first.into_iter().flatten().min().filter(|at| *at < limit) else {
                self.now = limit;
                return so(self);
            };
            self.now = next;
            self.happenings += 1;
            must!(Quiet, self.happenings < HAPPENINGS, "cores run without pause");
            if agenda == Some(next) {
                let (_, happening) = self.agenda.pop_first().expect("a happening");
                self.happen(happening);
            } else if expiry == Some(next) {
                self.store.expire(next);
                self.store.removed.clear();
            } else if let Some((_, n)) = timeout {
                self.submit(n, Input::Tick);
            }
            self.deliver_events();
        }
        true
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Submit { to, input } => self.submit(to, input),
            Happening::End(call) => self.release(call),
            Happening::Arrive { from, id, request, answered } => {
                let result = self.store.apply(self.now, &request);
                self.store.removed.clear();
                if answered {
                    self.answer(from, id, WAY, result);
                }
            }
        }
    }

    fn after(&mut self, time: Duration, happening: Happening) {
        self.sequence += 1;
        self.agenda.insert((self.now + time, self.sequence), happening);
    }

    fn answer(
        &mut self,
        to: usize,
        request: RequestId,
        after: Duration,
        result: Result<Response, Failure>,
    ) {
        let input = Input::Answer { request, result };
        self.after(after, Happening::Submit { to, input });
    }

    fn submit(&mut self, n: usize, input: Input) {
        if self.processes[n].finished {
            return;
        }
        self.processes[n].core.handle(self.now, input);
        while let Some(output) = self.processes[n].core.poll() {
            self.take_output(n, output);
        }
    }

    fn take_output(&mut self, n: usize, output: Output) {
        match output {
            Output::Send { id, request } => self.send(n, id, request),
            Output::Watch { id, prefix, from, puts } => {
                let from = from.get();
                let Some(missed) = self.store.events(&prefix, from) else {
                    let (watch, event) = (id, WatchEvent::Compacted);
                    let input = Input::Watch { watch, event };
                    return self.after(2 * WAY, Happening::Submit { to: n, input });
                };
                for event in missed {
                    self.deliver(n, id, puts, event);
                }
                let next = from.max(self.store.revision() + 1);
                self.processes[n].watches.insert(id, Watch { prefix, puts, next });
            }
            Output::Unwatch(id) => drop(self.processes[n].watches.remove(&id)),
            Output::Granted(grant) => self.grant(grant),
            Output::Refused { call, why } => {
                let now = self.now;
                self.calls.get_mut(&call.get()).expect("a call").refused = Some((now, why));
            }
            Output::Stopped(call) => {
                self.calls.get_mut(&call.get()).expect("a call").stopped = true;
            }
            Output::Lost { call, cause } => {
                let call = call.get();
                self.calls.get_mut(&call).expect("a call").lost = Some(cause);
                self.after(Duration::ZERO, Happening::End(call));
            }
            Output::Finished => self.processes[n].finished = true,
            Output::Released { .. } | Output::Ready(..) => {}
        }
    }

    fn grant(&mut self, grant: Grant) {
        let call = grant.call.get();
        let known = self.calls.get_mut(&call).expect("a call");
        known.granted = Some((self.now, grant));
        let (n, hold) = (known.process, known.hold);
        if let Some(at_least) = known.at_least {
            let until = self.now + at_least;
            let input = Input::Keep { call: call.into(), until };
            self.after(Duration::ZERO, Happening::Submit { to: n, input });
        }
        if let Some(hold) = hold {
            self.after(hold, Happening::End(call));
        }
    }

    fn send(&mut self, from: usize, id: RequestId, request: Request) {
        self.processes[from].sent.push((self.now, reads(&request)));
        let patience = match &request {
            Request::KeepAlive { timeout, .. } => *timeout,
            _ => PATIENCE,
        };
        let fate = (self.fate)(from, &request);
        match fate {
            Fate::Refused => return self.answer(from, id, WAY, Err(unavailable())),
            Fate::Lost | Fate::Unanswered => self.answer(from, id, patience, Err(unknown())),
            Fate::Served => {}
        }
        if fate != Fate::Lost {
            let answered = fate == Fate::Served;
            let arrive = Happening::Arrive { from, id, request, answered };
            self.after(WAY, arrive);
        }
    }

    fn deliver_events(&mut self) {
        let revision = self.store.revision();
        if revision <= self.delivered {
            return;
        }
        let events = self.store.events("locks", self.delivered + 1).unwrap_or_default();
        self.delivered = revision;
        let mut all = Vec::new();
        for event in events {
            let (key, at) = (key_of(&event).to_vec(), revision_of(&event));
            let mut due = Vec::new();
            for (n, process) in self.processes.iter_mut().enumerate() {
                for (id, watch) in &mut process.watches {
                    if watch.next <= at && key.starts_with(watch.prefix.as_bytes()) {
                        due.push((n, *id, watch.puts));
                    }
                }
            }
            all.extend(due.into_iter().map(|(n, id, puts)| (n, id, puts, event.clone())));
        }
        let processes = self.processes.iter_mut();
        for watch in processes.flat_map(|process| process.watches.values_mut()) {
            watch.next = watch.next.max(revision + 1);
        }
        for (n, id, puts, event) in all {
            self.deliver(n, id, puts, event);
        }
    }

    fn deliver(&mut self, to: usize, watch: WatchId, puts: bool, event: Event) {
        if puts || matches!(event, Event::Delete { .. }) {
            let event = WatchEvent::Changed(event);
            let input = Input::Watch { watch, event };
            self.after(WAY, Happening::Submit { to, input });
        }
    }
}

fn key_of(event: &Event) -> &[u8] {
    match event {
        Event::Put(kv) => &kv.key,
        Event::Delete { key, .. } => key,
    }
}

/// Reads that a request asks for if its conditions hold.
fn reads(request: &Request) -> usize {
    let Request::Txn(txn) = request else { return 0 };
    let reads = |op: &&Op| matches!(op, Op::Get { .. } | Op::Range { .. });
    txn.then.iter().filter(reads).count()
}

/// True where a transaction names a key with this in it.
pub(super) fn mentions(request: &Request, word: &str) -> bool {
    let Request::Txn(txn) = request else {
        return false;
    };
    txn.then.iter().chain(&txn.or_else).any(|op| match op {
        Op::Put { key, .. } | Op::Get { key, .. } | Op::Delete(key) => key.contains(word),
        Op::Range { prefix, .. } | Op::DeleteUnder(prefix) => prefix.contains(word),
    })
}

/// True where a transaction puts a key with this in it.
pub(super) fn puts(request: &Request, word: &str) -> bool {
    let Request::Txn(txn) = request else {
        return false;
    };
    let mut ops = txn.then.iter();
    ops.any(|op| matches!(op, Op::Put { key, .. } if key.contains(word)))
}

/// True where a transaction writes.
pub(super) fn writes(request: &Request) -> bool {
    let Request::Txn(txn) = request else {
        return false;
    };
    let mut ops = txn.then.iter().chain(&txn.or_else);
    ops.any(|op| !matches!(op, Op::Get { .. } | Op::Range { .. }))
}
