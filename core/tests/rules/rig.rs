//! Rig: one core, and every request of its passes through the test's hands.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use etcd_locked_core::{
    Acquire, Contender, Core, Event, Failure, Grant, Input, Key, LeaseId, LossCause, Mode, Moment,
    Op, Output, Refused, Release, Request, RequestId, Response, Revision, Session, Settings, Wait,
    WatchId,
};
use etcd_locked_sim::etcd::{Etcd, settings};
use etcd_locked_sim::transport::Transport;

use crate::{CallId, stack};

/// The TTL of all calls, unless said otherwise, in seconds.
pub(crate) const TTL: i64 = 9;

/// The id of the call that only opens a session.
const WARM: CallId = 1_000_000;

#[derive(Debug)]
pub(crate) struct Rig {
    pub(crate) core: Core,
    transport: Transport,
    pub(crate) store: Etcd,
    pub(crate) now: Moment,
    /// Requests without an answer, the oldest first.
    pub(crate) sent: VecDeque<(RequestId, Request)>,
    outputs: Vec<Output>,
    /// The open watches: what the keys begin with that each is on, and whether it reports puts.
    watches: BTreeMap<WatchId, (Key, bool)>,
    /// How many were opened.
    opened: usize,
    /// Names that were reported for the keys below them.
    pub(crate) crowded: Vec<Key>,
    /// Steps that the last input took.
    pub(crate) steps: u64,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::of(None, None)
    }

    /// So many calls may wait.
    pub(crate) fn with_waiters(max: usize) -> Self {
        Self::of(None, Some(max))
    }

    fn of(keys_per_session: Option<usize>, max_waiters: Option<usize>) -> Self {
        Self::with(Settings { keys_per_session, max_waiters, defers: false, ..settings(1) })
    }

    fn with(settings: Settings) -> Self {
        Self {
            transport: Transport::new(settings.connect_timeout),
            core: Core::new(settings),
            store: Etcd::new(),
            now: Moment::after_boot(Duration::from_secs(100)),
            sent: VecDeque::new(),
            outputs: Vec::new(),
            watches: BTreeMap::new(),
            opened: 0,
            crowded: Vec::new(),
            steps: 0,
        }
    }

    /// With an open session.
    pub(crate) fn warm() -> Self {
        Self::new().warmed()
    }

    /// The same; a session takes at most this many keys.
    pub(crate) fn spreading(limit: impl Into<Option<usize>>) -> Self {
        Self::of(limit.into(), None).warmed()
    }

    /// With an open session, and requests that leave with the next tick; a session takes at most this many keys.
    pub(crate) fn deferring(limit: impl Into<Option<usize>>) -> Self {
        let settings = Settings { keys_per_session: limit.into(), defers: true, ..settings(1) };
        Self::with(settings).warmed()
    }

    fn warmed(mut self) -> Self {
        self.submit(Input::Warm { call: WARM.into(), ttl_secs: TTL });
        self.serve();
        assert!(matches!(self.outputs.pop(), Some(Output::Ready(..))));
        self
    }

    /// One turn of the contract.
    pub(crate) fn submit(&mut self, mut input: Input) {
        if let Input::Answer { request, result } = &mut input {
            self.transport.end(self.now, *request, result);
        }
        let probe = self.transport.probe(self.now);
        let command = matches!(input, Input::Acquire(_) | Input::Release { .. } | Input::Cancel(_));
        while !command && let Some(news) = self.transport.news() {
            self.step(news);
        }
        self.step(input);
        self.sent.extend(probe);
        self.transport.wait(self.now, self.core.has_waiters());
    }

    fn step(&mut self, input: Input) {
        let (outputs, steps) = stack::handle(&mut self.core, self.now, input);
        self.steps = steps;
        for output in outputs {
            match output {
                Output::Send { id, request } => {
                    self.transport.send(self.now, id, &request);
                    self.sent.push_back((id, request));
                }
                Output::Watch { id, prefix, puts, .. } => {
                    self.opened += 1;
                    self.watches.insert(id, (prefix, puts));
                }
                Output::Unwatch(id) => drop(self.watches.remove(&id)),
                Output::Crowded(name) => self.crowded.push(name),
                output => self.outputs.push(output),
            }
        }
    }

    pub(crate) fn acquire(&mut self, call: CallId, name: &str, wait: Wait) {
        self.acquire_for(call, name, wait, TTL);
    }

    /// A call that etcd serves, and that is granted.
    #[track_caller]
    pub(crate) fn hold(&mut self, call: CallId, name: &str) -> Grant {
        self.hold_all(call, &[name])
    }

    /// The same with several names.
    #[track_caller]
    pub(crate) fn hold_all(&mut self, call: CallId, names: &[&str]) -> Grant {
        self.acquire_all(call, names, Wait::Forever);
        self.serve();
        self.granted(call)
    }

    /// A call that waits, as far as etcd has to do with it.
    pub(crate) fn queue(&mut self, call: CallId, name: &str) {
        self.acquire(call, name, Wait::Forever);
        self.serve();
    }

    /// Puts of other calls travel, as many as a transaction carries: what comes now waits until no more travel than wait (rule P7).
    pub(crate) fn fill_window(&mut self) {
        for call in 0..64 {
            self.acquire(10_000 + call, &format!("locks/full/{call}"), Wait::Forever);
        }
    }

    pub(crate) fn acquire_for(&mut self, call: CallId, name: &str, wait: Wait, ttl_secs: i64) {
        self.call(call, &[name], Mode::Exclusive, wait, ttl_secs, &[]);
    }

    /// A call with several names.
    pub(crate) fn acquire_all(&mut self, call: CallId, names: &[&str], wait: Wait) {
        self.call(call, names, Mode::Exclusive, wait, TTL, &[]);
    }

    /// A call of this mode.
    pub(crate) fn share(&mut self, call: CallId, name: &str, mode: Mode, wait: Wait) {
        self.call(call, &[name], mode, wait, TTL, &[]);
    }

    /// A reader with this TTL, that etcd serves.
    pub(crate) fn read_for(&mut self, call: CallId, name: &str, ttl_secs: i64) {
        self.call(call, &[name], Mode::Shared, Wait::Forever, ttl_secs, &[]);
        self.serve();
        self.granted(call);
    }

    /// A call of a task that holds the locks of another call.
    pub(crate) fn acquire_inside(&mut self, call: CallId, name: &str, outer: CallId) {
        let (mode, wait) = (Mode::Exclusive, Wait::Forever);
        self.call(call, &[name], mode, wait, TTL, &[outer]);
    }

    pub(crate) fn call(
        &mut self,
        call: CallId,
        names: &[&str],
        mode: Mode,
        wait: Wait,
        ttl_secs: i64,
        holds: &[CallId],
    ) {
        let record = format!("call {call}").into_bytes().into();
        self.submit(Input::Acquire(Acquire {
            call: call.into(),
            names: names.iter().map(|name| Key::from(*name)).collect(),
            ttl_secs,
            mode,
            wait,
            record,
            holds: holds.iter().map(|call| (*call).into()).collect(),
        }));
    }

    pub(crate) fn cancel(&mut self, call: CallId) {
        self.submit(Input::Cancel(call.into()));
    }

    pub(crate) fn release(&mut self, call: CallId) {
        self.release_as(call, Release::Confirmed, false);
    }

    /// The same, and etcd answers.
    pub(crate) fn give_back(&mut self, call: CallId) {
        self.release(call);
        self.serve();
    }

    /// Its keys are not handed over, whichever call waits.
    pub(crate) fn release_fenced(&mut self, call: CallId) {
        self.release_as(call, Release::Confirmed, true);
    }

    pub(crate) fn release_as(&mut self, call: CallId, how: Release, fenced: bool) {
        let call = call.into();
        self.submit(Input::Release { call, how, fenced });
    }

    pub(crate) fn shut_down(&mut self, grace: Duration) {
        let until = self.now + grace;
        self.submit(Input::Shutdown { until });
    }

    /// The oldest request without an answer.
    pub(crate) fn take(&mut self) -> (RequestId, Request) {
        self.sent.pop_front().expect("a request")
    }

    /// The oldest request without an answer that puts.
    pub(crate) fn take_put(&mut self) -> (RequestId, Request) {
        self.take_that(|request| !puts(request).is_empty())
    }

    /// The oldest request without an answer that is such.
    pub(crate) fn take_that(&mut self, such: impl Fn(&Request) -> bool) -> (RequestId, Request) {
        self.find(such).expect("such a request")
    }

    /// The same, if there is one.
    pub(crate) fn find(&mut self, such: impl Fn(&Request) -> bool) -> Option<(RequestId, Request)> {
        let at = self.sent.iter().position(|(_, request)| such(request))?;
        self.sent.remove(at)
    }

    pub(crate) fn answer(&mut self, request: RequestId, result: Result<Response, Failure>) {
        self.submit(Input::Answer { request, result });
    }

    /// etcd carries a request out, and answers.
    pub(crate) fn carry_out(&mut self, request: (RequestId, Request)) {
        let result = self.store.apply(self.now, &request.1);
        self.answer(request.0, result);
    }

    /// etcd answers all there is to answer.
    pub(crate) fn serve(&mut self) {
        while let Some(request) = self.sent.pop_front() {
            self.carry_out(request);
        }
    }

    /// Every request without an answer fails.
    pub(crate) fn fail_all(&mut self, failure: fn() -> Failure) {
        for (id, _) in std::mem::take(&mut self.sent) {
            self.answer(id, Err(failure()));
        }
    }

    /// etcd answers its probes: it is back.
    pub(crate) fn come_back(&mut self) {
        while let Some(at) = self.sent.iter().position(|(id, _)| Transport::is_probe(*id)) {
            let probe = self.sent.remove(at).expect("a probe");
            self.carry_out(probe);
        }
    }

    /// Time passes, and nothing arrives.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.submit(Input::Tick);
    }

    /// Time passes, and etcd answers.
    pub(crate) fn live(&mut self, time: Duration) {
        for _ in 0..time.as_millis() / 50 {
            self.pass(Duration::from_millis(50));
            self.store.expire(self.now);
            self.serve();
        }
    }

    /// The watches report what has happened last at etcd.
    pub(crate) fn report(&mut self) {
        let revision = self.store.revision();
        for (watch, (prefix, puts)) in self.watches.clone() {
            let mut events = self.store.events(&prefix, revision).unwrap_or_default();
            events.retain(|event| puts || matches!(event, Event::Delete { .. }));
            for event in events {
                self.submit(Input::Watch { watch, event: Some(event) });
            }
        }
    }

    /// The only watch reports something.
    pub(crate) fn event(&mut self, event: Event) {
        let watch = *self.watches.keys().next().expect("a watch");
        self.submit(Input::Watch { watch, event: Some(event) });
    }

    /// What the keys begin with that watches are on.
    pub(crate) fn watched(&self) -> Vec<&str> {
        self.watches.values().map(|(prefix, _)| &**prefix).collect()
    }

    /// How many watches were opened.
    pub(crate) fn watches(&self) -> usize {
        self.opened
    }

    /// Takes the refusals of all calls, and counts them.
    pub(crate) fn refusals(&mut self) -> usize {
        let refused = |it: &mut Output| matches!(it, Output::Refused { .. });
        self.outputs.extract_if(.., refused).count()
    }

    /// The oldest output about a call; what is about others stays.
    pub(crate) fn output(&mut self, call: CallId) -> Option<Output> {
        let at = self.outputs.iter().position(|output| match output {
            Output::Granted(grant) => grant.call.get() == call,
            Output::Refused { call: of, .. }
            | Output::Lost { call: of, .. }
            | Output::Released { call: of, .. } => of.get() == call,
            _ => false,
        })?;
        Some(self.outputs.remove(at))
    }

    #[track_caller]
    pub(crate) fn granted(&mut self, call: CallId) -> Grant {
        match self.output(call) {
            Some(Output::Granted(grant)) => grant,
            other => panic!("call {call} gets {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn refused(&mut self, call: CallId) -> Refused {
        match self.output(call) {
            Some(Output::Refused { why, .. }) => why,
            other => panic!("call {call} gets {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn lost(&mut self, call: CallId) -> LossCause {
        match self.output(call) {
            Some(Output::Lost { cause, .. }) => cause,
            other => panic!("call {call} gets {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn released(&mut self, call: CallId) -> Result<(), Refused> {
        match self.output(call) {
            Some(Output::Released { result, .. }) => result,
            other => panic!("call {call} gets {other:?}"),
        }
    }

    pub(crate) fn is_finished(&self) -> bool {
        let mut outputs = self.outputs.iter();
        outputs.any(|output| matches!(output, Output::Finished))
    }

    /// A key of another process below a name.
    pub(crate) fn contend(&mut self, key: &str) -> LeaseId {
        let lease = self.store.grant(self.now, Duration::from_secs(3600));
        self.store.put(key.as_bytes(), lease);
        lease
    }

    /// The revision of etcd.
    pub(crate) fn revision(&self) -> Revision {
        Revision::new(self.store.revision()).expect("never 0")
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.store.kv(key.as_bytes()).is_some()
    }

    /// The contenders of a name.
    pub(crate) fn contenders(&self, name: &str) -> Vec<&Contender> {
        let own = self.core.contenders().filter(|(of, _)| &***of == name);
        own.map(|(_, contender)| contender).collect()
    }

    /// The create revision of the only contender of a name.
    pub(crate) fn created(&self, name: &str) -> Option<Revision> {
        match &self.contenders(name)[..] {
            [contender] => contender.created,
            other => panic!("{other:?}"),
        }
    }

    /// The core wants a tick now.
    pub(crate) fn is_due(&self) -> bool {
        self.core.next_timeout().is_some_and(|due| due <= self.now)
    }

    /// No call wants anything, and nothing is left.
    pub(crate) fn is_idle(&self) -> bool {
        self.core.leftovers().is_none()
    }

    /// The same, once names that were contended are forgotten.
    pub(crate) fn comes_to_rest(&mut self) -> bool {
        self.live(Duration::from_secs(6));
        self.is_idle()
    }

    /// The sessions.
    pub(crate) fn sessions(&self) -> Vec<&Session> {
        self.core.sessions().collect()
    }
}

/// The keys that a request puts.
pub(crate) fn puts(request: &Request) -> Vec<&str> {
    let Request::Txn(txn) = request else {
        return Vec::new();
    };
    let keys = txn.then.iter().filter_map(|op| match op {
        Op::Put { key, .. } => Some(&**key),
        _ => None,
    });
    keys.collect()
}

/// The keys that a request deletes.
pub(crate) fn deletes(request: &Request) -> Vec<&str> {
    let Request::Txn(txn) = request else {
        return Vec::new();
    };
    let keys = txn.then.iter().filter_map(|op| match op {
        Op::Delete(key) => Some(&**key),
        _ => None,
    });
    keys.collect()
}

/// Whether a request only reads.
pub(crate) fn reads(request: &Request) -> bool {
    matches!(request, Request::Txn(txn) if txn.only_reads())
}
