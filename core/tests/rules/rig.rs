//! Rig: one core, where the test handles every request.

use crate::*;

/// A request that the test has taken before it reaches etcd.
pub(crate) type Taken = (RequestId, Request);

type Reply = Result<Response, Failure>;

/// The result of a request, on its way to the core.
type Answer = (RequestId, Reply);

#[derive(Debug)]
pub(crate) struct Rig {
    pub(crate) core: Core,
    transport: Transport,
    pub(crate) store: Etcd,
    pub(crate) now: Moment,
    /// The requests without a response, the oldest first.
    pub(crate) sent: VecDeque<Taken>,
    pub(crate) outputs: Vec<Output>,
    grants: BTreeMap<CallId, Grant>,
    /// The open watches: prefix, next revision, and whether each reports puts.
    watches: BTreeMap<WatchId, (Key, i64, bool)>,
    pub(crate) opened: usize,
    pub(crate) steps: u64,
    pub(crate) requests: usize,
}

impl Rig {
    pub(crate) fn with(settings: Settings) -> Self {
        Self {
            transport: Transport::new(settings.connect_timeout),
            core: Core::new(settings),
            store: Etcd::new(),
            now: Moment::after_boot(100 * SECOND),
            sent: VecDeque::new(),
            outputs: Vec::new(),
            grants: BTreeMap::new(),
            watches: BTreeMap::new(),
            opened: 0,
            steps: 0,
            requests: 0,
        }
    }

    pub(crate) fn new() -> Self {
        Self::with(settings(1))
    }

    pub(crate) fn warm() -> Self {
        Self::new().warmed()
    }

    pub(crate) fn warmed(mut self) -> Self {
        self.submit(Input::Warm { call: Id(1_000_000), ttl_secs: TTL });
        self.serve();
        assert!(matches!(self.outputs.pop(), Some(Output::Ready(..))));
        self
    }

    /// The put of call 1 for `locks/a` is under way.
    pub(crate) fn putting() -> Self {
        let mut rig = Self::warm();
        rig.acquire(1, A);
        rig
    }

    /// Call 1 waits for `locks/a` behind `locks/a/zz` of another process.
    pub(crate) fn waiting() -> Self {
        let mut rig = Self::warm();
        rig.contend("locks/a/zz").queue(1, A);
        rig
    }

    pub(crate) fn holding() -> Self {
        let mut rig = Self::warm();
        rig.hold(1, A);
        rig
    }

    pub(crate) fn reading() -> Self {
        let mut rig = Self::warm();
        rig.read(1, A);
        rig
    }

    /// Runs the contract's loop once.
    pub(crate) fn submit(&mut self, mut input: Input) -> &mut Self {
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
        self
    }

    /// Passes an input to the core on a small stack, because an engine's thread may have little.
    fn step(&mut self, input: Input) {
        let (core, now) = (&mut self.core, self.now);
        let turn = || {
            core.handle(now, input);
            (std::iter::from_fn(|| core.poll()).collect::<Vec<_>>(), taken())
        };
        let (outputs, steps) = std::thread::scope(|scope| {
            let small = std::thread::Builder::new().stack_size(256 << 10);
            let thread = small.spawn_scoped(scope, turn).expect("a thread");
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        self.steps = steps;
        for output in outputs {
            match output {
                Output::Send { id, request } => {
                    self.transport.send(self.now, id, &request);
                    self.sent.push_back((id, request));
                }
                Output::Watch { id, prefix, from, puts } => {
                    self.opened += 1;
                    self.watches.insert(id, (prefix, from.get(), puts));
                }
                Output::Unwatch(id) => drop(self.watches.remove(&id)),
                output => self.outputs.push(output),
            }
        }
    }

    pub(crate) fn acquire(&mut self, call: CallId, name: &str) -> &mut Self {
        self.acquire_all(call, &[name])
    }

    pub(crate) fn acquire_all(&mut self, call: CallId, names: &[&str]) -> &mut Self {
        self.acquire_as(call, names, Wait::Forever)
    }

    /// Makes these calls, each for a separate name: `locks/` and its number.
    pub(crate) fn acquire_each(&mut self, calls: Range<CallId>) -> &mut Self {
        calls.for_each(|call| _ = self.acquire(call, &format!("locks/{call}")));
        self
    }

    pub(crate) fn acquire_within(&mut self, call: CallId, name: &str, time: Duration) -> &mut Self {
        self.acquire_as(call, &[name], Wait::For(time))
    }

    pub(crate) fn attempt(&mut self, call: CallId, name: &str) -> &mut Self {
        self.acquire_as(call, &[name], Wait::Once)
    }

    pub(crate) fn acquire_as(&mut self, call: CallId, names: &[&str], wait: Wait) -> &mut Self {
        self.submit(Input::Acquire(Acquire { wait, ..ask(call, names) }))
    }

    pub(crate) fn acquire_for(&mut self, call: CallId, name: &str, ttl_secs: i64) -> &mut Self {
        self.submit(Input::Acquire(Acquire { ttl_secs, ..ask(call, &[name]) }))
    }

    /// Makes a call whose task holds the locks of another call.
    pub(crate) fn nest(&mut self, call: CallId, names: &[&str], outer: CallId) -> &mut Self {
        let holds = vec![Id(outer)];
        self.submit(Input::Acquire(Acquire { holds, ..ask(call, names) }))
    }

    pub(crate) fn share(&mut self, call: CallId, name: &str, mode: Mode, wait: Wait) -> &mut Self {
        self.submit(Input::Acquire(Acquire { mode, wait, ..ask(call, &[name]) }))
    }

    pub(crate) fn queue(&mut self, call: CallId, name: &str) -> &mut Self {
        self.acquire(call, name).serve()
    }

    #[track_caller]
    pub(crate) fn hold(&mut self, call: CallId, name: &str) -> &mut Self {
        self.hold_all(call, &[name])
    }

    #[track_caller]
    pub(crate) fn hold_all(&mut self, call: CallId, names: &[&str]) -> &mut Self {
        self.acquire_all(call, names).serves(call)
    }

    #[track_caller]
    pub(crate) fn read(&mut self, call: CallId, name: &str) -> &mut Self {
        self.share(call, name, Mode::Shared, Wait::Forever).serves(call)
    }

    pub(crate) fn cancel(&mut self, call: CallId) -> &mut Self {
        self.submit(Input::Cancel(Id(call)))
    }

    pub(crate) fn release(&mut self, call: CallId) -> &mut Self {
        self.release_as(call, Release::Confirmed, false)
    }

    /// Releases a call whose keys must not be handed over.
    pub(crate) fn release_fenced(&mut self, call: CallId) -> &mut Self {
        self.release_as(call, Release::Confirmed, true)
    }

    pub(crate) fn release_lingering(&mut self, call: CallId) -> &mut Self {
        self.release_as(call, Release::Lingering, false)
    }

    pub(crate) fn release_as(&mut self, call: CallId, how: Release, fenced: bool) -> &mut Self {
        let call = Id(call);
        self.submit(Input::Release { call, how, fenced })
    }

    #[track_caller]
    pub(crate) fn give_back(&mut self, call: CallId) -> &mut Self {
        self.release(call).serve().released(call)
    }

    pub(crate) fn shut_down(&mut self, grace: Duration) -> &mut Self {
        let until = self.now + grace;
        self.submit(Input::Shutdown { until })
    }

    /// Returns the oldest request without a response.
    pub(crate) fn next(&self) -> &Request {
        &self.sent.front().expect("a request").1
    }

    pub(crate) fn under_way(&self, kind: impl Fn(&Request) -> bool) -> usize {
        self.sent.iter().filter(|(_, request)| kind(request)).count()
    }

    #[track_caller]
    pub(crate) fn take(&mut self, kind: impl Fn(&Request) -> bool) -> Taken {
        let at = self.sent.iter().position(|(_, request)| kind(request));
        at.and_then(|at| self.sent.remove(at)).expect("such a request")
    }

    /// Lets etcd carry out a request. The response is under way.
    pub(crate) fn apply(&mut self, (id, request): Taken) -> Answer {
        self.requests += 1;
        (id, self.store.apply(self.now, &request))
    }

    #[track_caller]
    pub(crate) fn applied(&mut self, kind: impl Fn(&Request) -> bool) -> Answer {
        let request = self.take(kind);
        self.apply(request)
    }

    pub(crate) fn deliver(&mut self, (request, result): Answer) -> &mut Self {
        self.submit(Input::Answer { request, result })
    }

    pub(crate) fn carry_out(&mut self, request: Taken) -> &mut Self {
        let answer = self.apply(request);
        self.deliver(answer)
    }

    #[track_caller]
    pub(crate) fn serve_one(&mut self, kind: impl Fn(&Request) -> bool) -> &mut Self {
        let answer = self.applied(kind);
        self.deliver(answer)
    }

    /// Responds to the oldest request of this kind, which does not reach etcd.
    #[track_caller]
    pub(crate) fn answer(&mut self, kind: fn(&Request) -> bool, reply: Reply) -> &mut Self {
        let (request, _) = self.take(kind);
        self.deliver((request, reply))
    }

    /// Lets etcd respond to all requests of this kind, and to those that follow from them.
    pub(crate) fn serve_all(&mut self, kind: impl Fn(&Request) -> bool) -> &mut Self {
        while self.under_way(&kind) > 0 {
            self.serve_one(&kind);
        }
        self
    }

    pub(crate) fn serve(&mut self) -> &mut Self {
        self.serve_all(any)
    }

    #[track_caller]
    pub(crate) fn serves(&mut self, call: CallId) -> &mut Self {
        self.serve().granted(call)
    }

    pub(crate) fn fail_all(&mut self, failure: fn() -> Failure) -> &mut Self {
        for (id, _) in std::mem::take(&mut self.sent) {
            self.deliver((id, Err(failure())));
        }
        self
    }

    /// Lets etcd respond to a probe, so that it is back.
    pub(crate) fn come_back(&mut self) -> &mut Self {
        while let Some(at) = self.sent.iter().position(|(id, _)| Transport::is_probe(*id)) {
            let probe = self.sent.remove(at).expect("a probe");
            self.carry_out(probe);
        }
        self
    }

    /// Lets time pass, without responses.
    pub(crate) fn pass(&mut self, time: Duration) -> &mut Self {
        self.now = self.now + time;
        self.submit(Input::Tick)
    }

    pub(crate) fn pass_in_steps(&mut self, time: Duration) -> &mut Self {
        (0..time.as_millis() / STEP.as_millis()).for_each(|_| _ = self.pass(STEP));
        self
    }

    /// Lets time pass while etcd responds.
    pub(crate) fn live(&mut self, time: Duration) -> &mut Self {
        self.count(time, any);
        self
    }

    /// Lets time pass while etcd responds. Returns the number of requests of this kind.
    pub(crate) fn count(&mut self, time: Duration, kind: impl Fn(&Request) -> bool) -> usize {
        let mut count = 0;
        for _ in 0..time.as_millis() / STEP.as_millis() {
            self.pass(STEP);
            self.store.expire(self.now);
            count += self.under_way(&kind);
            self.serve();
        }
        count
    }

    /// Lets the watches report the last change at etcd.
    pub(crate) fn report(&mut self) -> &mut Self {
        self.report_since(self.store.revision());
        self
    }

    /// Lets the watches report the changes since a revision, unless they have. Returns true if they report any.
    pub(crate) fn report_since(&mut self, revision: i64) -> bool {
        let mut reports = Vec::new();
        for (watch, (prefix, next, puts)) in &mut self.watches {
            let events = self.store.events(prefix, revision.max(*next)).unwrap_or_default();
            let events =
                events.into_iter().filter(|it| *puts || matches!(it, Event::Delete { .. }));
            reports.extend(events.map(|event| (*watch, event)));
            *next = self.store.revision() + 1;
        }
        let any = !reports.is_empty();
        for (watch, event) in reports {
            self.submit(Input::Watch { watch, event: Some(event) });
        }
        any
    }

    /// Lets the only watch report something.
    pub(crate) fn event(&mut self, event: Event) -> &mut Self {
        let watch = *self.watches.keys().next().expect("a watch");
        self.submit(Input::Watch { watch, event: Some(event) })
    }

    /// Deletes a key at etcd, and lets the watches report it.
    pub(crate) fn delete(&mut self, key: &str) -> &mut Self {
        self.delete_unseen(key).report()
    }

    /// Deletes a key at etcd without a report of the watches.
    pub(crate) fn delete_unseen(&mut self, key: &str) -> &mut Self {
        self.store.delete(key.as_bytes());
        self
    }

    pub(crate) fn watched(&self) -> Vec<&str> {
        self.watches.values().map(|(prefix, ..)| &**prefix).collect()
    }

    pub(crate) fn refusals(&mut self) -> usize {
        let refused = |it: &mut Output| matches!(it, Output::Refused { .. });
        self.outputs.extract_if(.., refused).count()
    }

    /// Removes the oldest output about a call.
    pub(crate) fn output(&mut self, call: CallId) -> Option<Output> {
        let at = self.outputs.iter().position(|output| match output {
            Output::Granted(grant) => grant.call.0 == call,
            Output::Refused { call: of, .. }
            | Output::Lost { call: of, .. }
            | Output::Released { call: of, .. } => of.0 == call,
            _ => false,
        })?;
        Some(self.outputs.remove(at))
    }

    #[track_caller]
    pub(crate) fn nothing_about(&mut self, call: CallId) -> &mut Self {
        let output = self.output(call);
        assert!(output.is_none(), "call {call} gets {output:?}");
        self
    }

    #[track_caller]
    pub(crate) fn granted(&mut self, call: CallId) -> &mut Self {
        match self.output(call) {
            Some(Output::Granted(grant)) => self.grants.insert(call, grant),
            other => panic!("call {call} gets {other:?}"),
        };
        self
    }

    pub(crate) fn grant(&self, call: CallId) -> Grant {
        self.grants[&call].clone()
    }

    pub(crate) fn owned(&self, call: CallId) -> OwnedKey {
        self.grants[&call].owned[0].clone()
    }

    #[track_caller]
    pub(crate) fn granted_each(&mut self, calls: Range<CallId>) -> &mut Self {
        calls.for_each(|call| _ = self.granted(call));
        self
    }

    #[track_caller]
    pub(crate) fn refused(&mut self, call: CallId) -> Refused {
        match self.output(call) {
            Some(Output::Refused { why, .. }) => why,
            other => panic!("call {call} gets {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn busy(&mut self, call: CallId) -> (usize, String) {
        match self.refused(call) {
            Refused::Held { name, owner } => (name, text(owner.map(|it| it.record))),
            other => panic!("call {call} gets {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn timed_out(&mut self, call: CallId) -> (usize, String) {
        match self.refused(call) {
            Refused::Timeout { name, owner, .. } => (name, text(owner.map(|it| it.record))),
            other => panic!("call {call} gets {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn lost(&mut self, call: CallId, why: LossCause) -> &mut Self {
        match self.output(call) {
            Some(Output::Lost { cause, .. }) if cause == why => self,
            other => panic!("call {call} gets {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn released(&mut self, call: CallId) -> &mut Self {
        match self.output(call) {
            Some(Output::Released { result: Ok(()), .. }) => self,
            other => panic!("call {call} gets {other:?}"),
        }
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.outputs.iter().any(|output| matches!(output, Output::Finished))
    }

    pub(crate) fn contend(&mut self, key: &str) -> &mut Self {
        let lease = self.store.grant(self.now, 3600 * SECOND);
        self.store.put(key.as_bytes(), lease);
        self
    }

    /// Wipes etcd, or restores it from a snapshot.
    pub(crate) fn lose_history(&mut self, snapshot: Option<Snapshot>) -> &mut Self {
        match snapshot {
            Some(snapshot) => self.store.restore(self.now, snapshot),
            None => self.store.wipe(),
        }
        self
    }

    pub(crate) fn revision(&self) -> Revision {
        Revision::new(self.store.revision()).expect("never 0")
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.store.kv(key.as_bytes()).is_some()
    }

    #[track_caller]
    pub(crate) fn keeps(&mut self, keys: &[&str]) -> &mut Self {
        keys.iter().for_each(|key| assert!(self.has(key), "{key} is gone"));
        self
    }

    #[track_caller]
    pub(crate) fn lacks(&mut self, keys: &[&str]) -> &mut Self {
        keys.iter().for_each(|key| assert!(!self.has(key), "{key} is there"));
        self
    }

    #[track_caller]
    pub(crate) fn sends_nothing(&mut self) -> &mut Self {
        assert!(self.sent.is_empty(), "{:?}", self.sent);
        self
    }

    pub(crate) fn record(&self, key: &str) -> String {
        text(self.store.kv(key.as_bytes()).map(|kv| &kv.value))
    }

    pub(crate) fn contenders(&self, name: &str) -> Vec<&Contender> {
        let own = self.core.contenders().filter(|(of, _)| &***of == name);
        own.map(|(_, contender)| contender).collect()
    }

    /// Returns the create revision of the only contender of a name.
    pub(crate) fn created(&self, name: &str) -> Option<Revision> {
        match &self.contenders(name)[..] {
            [contender] => contender.created,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn is_due(&self) -> bool {
        self.core.next_timeout().is_some_and(|due| due <= self.now)
    }

    #[track_caller]
    pub(crate) fn is_idle(&mut self) -> &mut Self {
        assert_eq!(self.core.leftovers(), None);
        self
    }

    /// Checks that nothing is left once contended names are forgotten.
    #[track_caller]
    pub(crate) fn comes_to_rest(&mut self) -> &mut Self {
        self.live(6 * SECOND).is_idle()
    }

    pub(crate) fn sessions(&self) -> Vec<&Session> {
        self.core.sessions().collect()
    }
}

pub(crate) fn record(call: CallId) -> String {
    format!("{{\"call\":{call}}}")
}

/// Returns a call with the usual settings.
pub(crate) fn ask(call: CallId, names: &[&str]) -> Acquire {
    Acquire {
        call: Id(call),
        names: names.iter().map(|name| Key::from(*name)).collect(),
        ttl_secs: TTL,
        mode: Mode::Exclusive,
        wait: Wait::Forever,
        record: record(call).into_bytes().into(),
        holds: Vec::new(),
    }
}

pub(crate) fn text(value: Option<impl AsRef<[u8]>>) -> String {
    value.map_or_else(String::new, |value| String::from_utf8_lossy(value.as_ref()).into_owned())
}

/// Returns the operations of a transaction whose conditions hold.
pub(crate) fn operations(request: &Request) -> &[Op] {
    match request {
        Request::Txn(txn) => &txn.then,
        _ => &[],
    }
}

pub(crate) fn keys_put(request: &Request) -> Vec<&str> {
    let keys = operations(request).iter();
    keys.filter_map(|op| if let Op::Put { key, .. } = op { Some(&**key) } else { None }).collect()
}

pub(crate) fn keys_deleted(request: &Request) -> Vec<&str> {
    let keys = operations(request).iter();
    keys.filter_map(|op| if let Op::Delete(key) = op { Some(&**key) } else { None }).collect()
}

// Kinds of requests.

pub(crate) fn any(_: &Request) -> bool {
    true
}

pub(crate) fn puts(request: &Request) -> bool {
    !keys_put(request).is_empty()
}

pub(crate) fn deletes(request: &Request) -> bool {
    !keys_deleted(request).is_empty()
}

pub(crate) fn reads(request: &Request) -> bool {
    matches!(request, Request::Txn(txn) if txn.only_reads())
}

pub(crate) fn renews(request: &Request) -> bool {
    matches!(request, Request::KeepAlive { .. })
}

pub(crate) fn lists(request: &Request) -> bool {
    matches!(request, Request::List(_))
}
