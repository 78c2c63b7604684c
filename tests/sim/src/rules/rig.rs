//! One core on a bench of its own: every request passes through the test's hands.

use std::collections::VecDeque;
use std::time::Duration;

use etcd_locked_core::Moment;
use etcd_locked_core::lease::State;
use etcd_locked_core::Mode;
use etcd_locked_core::queue::Slot;
use etcd_locked_core::{Failure, LeaseId, Op, Request, Response, WatchEvent};
use etcd_locked_core::{
    Acquire, CallId, Core, Grant, Input, Output, Refused, Release, RequestId, Settings, WatchId,
};
use etcd_locked_core::LossCause;
use etcd_locked_core::Wait;
use crate::world::etcd::Etcd;

/// The TTL of all calls, unless said otherwise, in seconds.
pub(super) const TTL: i64 = 9;

#[derive(Debug)]
pub(super) struct Rig {
    pub(super) core: Core,
    pub(super) store: Etcd,
    pub(super) now: Moment,
    pub(super) sent: VecDeque<(RequestId, Request)>,
    told: Vec<Output>,
    watch: Option<WatchId>,
}

impl Rig {
    pub(super) fn new() -> Self {
        Self::of(1_000)
    }

    /// So many calls may wait.
    pub(super) fn with_waiters(max: usize) -> Self {
        Self::settled(1_000, Some(max))
    }

    fn of(bodies_per_session: usize) -> Self {
        Self::settled(bodies_per_session, None)
    }

    fn settled(bodies_per_session: usize, max_waiters: Option<usize>) -> Self {
        let settings = Settings {
            prefix: "locks/".into(),
            connect_timeout: Duration::from_secs(5),
            silence: crate::world::etcd::silence(),
            bodies_per_session,
            near: 16,
            max_waiters,
            seed: 1,
        };
        Self {
            core: Core::new(settings),
            store: Etcd::new(),
            now: Moment::after_boot(Duration::from_secs(100)),
            sent: VecDeque::new(),
            told: Vec::new(),
            watch: None,
        }
    }

    /// With an open lease: a call has come and gone.
    pub(super) fn warm() -> Self {
        Self::spreading(1_000)
    }

    /// The same, with so many bodies under one lease before the next gets some.
    pub(super) fn spreading(bodies_per_session: usize) -> Self {
        let mut rig = Self::of(bodies_per_session);
        rig.tell(Input::Warm {
            call: 1000,
            ttl_secs: TTL,
        });
        rig.serve();
        assert!(matches!(rig.told.pop(), Some(Output::Ready { call: 1000 })));
        rig
    }

    /// One turn of the contract.
    pub(super) fn tell(&mut self, input: Input) {
        self.core.handle(self.now, input);
        while let Some(output) = self.core.poll() {
            match output {
                Output::Send { id, request } => self.sent.push_back((id, request)),
                Output::Watch { id, .. } => self.watch = Some(id),
                Output::Unwatch { .. } => self.watch = None,
                told => self.told.push(told),
            }
        }
    }

    pub(super) fn acquire(&mut self, call: CallId, name: &str, wait: Wait) {
        self.acquire_for(call, name, wait, TTL);
    }

    pub(super) fn acquire_for(&mut self, call: CallId, name: &str, wait: Wait, ttl_secs: i64) {
        self.call(call, &[name], Mode::Exclusive, wait, ttl_secs, Vec::new());
    }

    /// A call with several names.
    pub(super) fn acquire_all(&mut self, call: CallId, names: &[&str], wait: Wait) {
        self.call(call, names, Mode::Exclusive, wait, TTL, Vec::new());
    }

    /// A call that shares.
    pub(super) fn share(&mut self, call: CallId, name: &str, mode: Mode, wait: Wait) {
        self.call(call, &[name], mode, wait, TTL, Vec::new());
    }

    /// A call of a task that holds another's lock.
    pub(super) fn acquire_inside(&mut self, call: CallId, name: &str, outer: CallId) {
        let (mode, wait) = (Mode::Exclusive, Wait::Forever);
        self.call(call, &[name], mode, wait, TTL, vec![outer]);
    }

    fn call(
        &mut self,
        call: CallId,
        names: &[&str],
        mode: Mode,
        wait: Wait,
        ttl_secs: i64,
        holds: Vec<CallId>,
    ) {
        let record = format!("call {call}").into_bytes().into();
        self.tell(Input::Acquire(Acquire {
            call,
            names: names.iter().map(|name| (*name).into()).collect(),
            ttl_secs,
            mode,
            wait,
            record,
            holds,
        }));
    }

    /// The key goes for good, whoever waits.
    pub(super) fn release_fenced(&mut self, call: CallId) {
        self.tell(Input::Release {
            call,
            how: Release::Confirmed,
            fenced: true,
        });
    }

    pub(super) fn release(&mut self, call: CallId) {
        self.tell(Input::Release {
            call,
            how: Release::Confirmed,
            fenced: false,
        });
    }

    /// The oldest request that has no answer.
    pub(super) fn take(&mut self) -> (RequestId, Request) {
        self.sent.pop_front().expect("a request")
    }

    /// The oldest request that puts and has no answer.
    pub(super) fn take_puts(&mut self) -> (RequestId, Request) {
        let at = self
            .sent
            .iter()
            .position(|(_, request)| !puts(request).is_empty())
            .expect("a put");
        self.sent.remove(at).unwrap()
    }

    pub(super) fn answer(&mut self, request: RequestId, result: Result<Response, Failure>) {
        self.tell(Input::Answer { request, result });
    }

    /// etcd answers all there is to answer.
    pub(super) fn serve(&mut self) {
        while let Some((id, request)) = self.sent.pop_front() {
            let result = self.store.apply(self.now, &request);
            self.answer(id, result);
        }
    }

    /// Time passes, and nothing comes.
    pub(super) fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.tell(Input::Tick);
    }

    /// Time passes, and etcd answers.
    pub(super) fn live(&mut self, time: Duration) {
        for _ in 0..time.as_millis() / 50 {
            self.pass(Duration::from_millis(50));
            self.store.expire(self.now);
            self.serve();
        }
    }

    pub(super) fn news(&mut self, news: WatchEvent) {
        let watch = self.watch.expect("a watch");
        self.tell(Input::Watch { watch, news });
    }

    /// What was told about a call, oldest first; what belongs to others stays.
    pub(super) fn told(&mut self, call: CallId) -> Option<Output> {
        let at = self.told.iter().position(|output| match output {
            Output::Granted(grant) => grant.call == call,
            Output::Refused { call: of, .. }
            | Output::Lost { call: of, .. }
            | Output::Released { call: of, .. } => *of == call,
            _ => false,
        })?;
        Some(self.told.remove(at))
    }

    pub(super) fn granted(&mut self, call: CallId) -> Grant {
        match self.told(call) {
            Some(Output::Granted(grant)) => grant,
            other => panic!("call {call} is told {other:?}"),
        }
    }

    pub(super) fn refused(&mut self, call: CallId) -> Refused {
        match self.told(call) {
            Some(Output::Refused { why, .. }) => why,
            other => panic!("call {call} is told {other:?}"),
        }
    }

    pub(super) fn lost(&mut self, call: CallId) -> LossCause {
        match self.told(call) {
            Some(Output::Lost { cause, .. }) => cause,
            other => panic!("call {call} is told {other:?}"),
        }
    }

    pub(super) fn finished(&mut self) -> bool {
        self.told
            .iter()
            .any(|output| matches!(output, Output::Finished))
    }

    /// Somebody else's key below a name.
    pub(super) fn contend(&mut self, key: &str) -> LeaseId {
        let lease = self.store.grant(self.now, Duration::from_secs(3600));
        self.store.put(key.as_bytes(), lease);
        lease
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.store.kv(key.as_bytes()).is_some()
    }

    pub(super) fn slot(&self, name: &str) -> &Slot {
        &self.core.queues[name].slot
    }

    /// The state of the only lease.
    pub(super) fn lease(&self) -> State {
        assert_eq!(self.core.leases.len(), 1);
        self.core.leases.values().next().map(|l| l.state).unwrap()
    }
}

/// The keys a request puts.
pub(super) fn puts(request: &Request) -> Vec<&str> {
    let Request::Txn(txn) = request else {
        return Vec::new();
    };
    let keys = txn.then.iter().filter_map(|op| match op {
        Op::Put { key, .. } => Some(&**key),
        _ => None,
    });
    keys.collect()
}

/// The keys a request deletes.
pub(super) fn deletes(request: &Request) -> Vec<&str> {
    let Request::Txn(txn) = request else {
        return Vec::new();
    };
    let keys = txn.then.iter().filter_map(|op| match op {
        Op::Delete { key } => Some(&**key),
        _ => None,
    });
    keys.collect()
}
