//! Stage of the scenarios: processes around one etcd, and a network with one delay.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use etcd_locked_core::{
    Acquire, Core, Event, Failure, Grant, Input, Key, LossCause, Mode, Moment, Op, Output, Refused,
    Release, Request, RequestId, Response, Settings, Wait, WatchEvent, WatchId,
};

use crate::world::etcd::{Etcd, settings, unknown};
use crate::world::violation::{Violation, must};
use crate::world::{CallId, Revision};

/// One way of every message.
const WAY: Duration = Duration::from_micros(500);
/// How long a process waits for an answer.
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
    hold: Option<Duration>,
    at_least: Option<Duration>,
    pub(super) granted: bool,
    pub(super) refused: Option<Refused>,
    pub(super) lost: Option<LossCause>,
    /// Its body is gone.
    dropped: bool,
}

#[derive(Debug)]
struct Process {
    core: Core,
    watches: BTreeMap<WatchId, Watch>,
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
    /// Puts of keys with this in them are carried out, and the answer is lost.
    pub(super) unanswered: Option<&'static str>,
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
            finished: false,
        };
        Self {
            now: Moment::after_boot(Duration::from_secs(1000)),
            store: Etcd::new(),
            processes: (0..processes).map(process).collect(),
            calls: BTreeMap::new(),
            agenda: BTreeMap::new(),
            unanswered: None,
            sequence: 0,
            happenings: 0,
        }
    }

    pub(super) fn ask(&mut self, n: usize, ask: Ask) -> CallId {
        let call = self.calls.len() as CallId + 1;
        let known = Call {
            process: n,
            hold: ask.hold,
            at_least: ask.at_least,
            granted: false,
            refused: None,
            lost: None,
            dropped: false,
        };
        self.calls.insert(call, known);
        let acquire = Acquire {
            call: call.into(),
            names: ask.names.iter().map(|name| Key::from(format!("locks/{name}")).into()).collect(),
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
        if !known.granted || std::mem::replace(&mut known.dropped, true) {
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
        call.granted && !call.dropped
    }

    /// All keys below a name.
    pub(super) fn keys(&self, name: &str) -> Vec<String> {
        let family = format!("locks/{name}/");
        let keys = self.store.kvs().map(|kv| &kv.key);
        keys.filter(|key| key.starts_with(family.as_bytes()))
            .map(|key| String::from_utf8_lossy(key).into_owned())
            .collect()
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
                let next = from.get();
                self.processes[n].watches.insert(id, Watch { prefix, puts, next });
                self.deliver_events();
            }
            Output::Unwatch(id) => drop(self.processes[n].watches.remove(&id)),
            Output::Granted(grant) => self.grant(grant),
            Output::Refused { call, why } => {
                self.calls.get_mut(&call.get()).expect("a call").refused = Some(why);
            }
            Output::Lost { call, cause } => {
                let call = call.get();
                self.calls.get_mut(&call).expect("a call").lost = Some(cause);
                self.after(Duration::ZERO, Happening::End(call));
            }
            Output::Finished => self.processes[n].finished = true,
            Output::Stopped(_) | Output::Released { .. } | Output::Ready(..) => {}
        }
    }

    fn grant(&mut self, grant: Grant) {
        let call = grant.call.get();
        let known = self.calls.get_mut(&call).expect("a call");
        known.granted = true;
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
        let lost = self.unanswered.is_some_and(|word| puts(&request, word));
        if lost {
            self.answer(from, id, PATIENCE, Err(unknown()));
        }
        self.after(WAY, Happening::Arrive { from, id, request, answered: !lost });
    }

    /// Delivers to the watches what has happened since.
    fn deliver_events(&mut self) {
        let revision = self.store.revision();
        let mut due = Vec::new();
        for (to, process) in self.processes.iter_mut().enumerate() {
            process.watches.retain(|id, watch| {
                if watch.next > revision {
                    return true;
                }
                let events = self.store.events(&watch.prefix, watch.next);
                watch.next = revision + 1;
                let is_there = events.is_some();
                let wanted = |event: &Event| watch.puts || matches!(event, Event::Delete { .. });
                let events = events.into_iter().flatten().filter(wanted).map(WatchEvent::Changed);
                let compacted = (!is_there).then_some(WatchEvent::Compacted);
                due.extend(events.chain(compacted).map(|event| (to, *id, event)));
                is_there
            });
        }
        for (to, watch, event) in due {
            self.after(WAY, Happening::Submit { to, input: Input::Watch { watch, event } });
        }
    }
}

/// True where a transaction puts a key with this in it.
fn puts(request: &Request, word: &str) -> bool {
    let Request::Txn(txn) = request else {
        return false;
    };
    let mut ops = txn.then.iter();
    ops.any(|op| matches!(op, Op::Put { key, .. } if key.contains(word)))
}
