//! Town: several cores around one etcd, which answers at once, unless the test withholds a request.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use etcd_locked_core::{
    Acquire, Core, Event, Grant, Input, Key, Kv, Mode, Moment, Op, Output, Refused, Release,
    Request, RequestId, Revision, Search, Txn, Wait, WatchId, listed_by,
};
use etcd_locked_sim::etcd::{Etcd, settings, unknown};

use crate::{CallId, stack};

const TTL: i64 = 30;

/// A request that the test withholds.
#[derive(Debug)]
pub(crate) struct Withheld {
    pub(crate) from: usize,
    pub(crate) id: RequestId,
    pub(crate) request: Request,
}

#[derive(Debug)]
pub(crate) struct Town {
    pub(crate) store: Etcd,
    pub(crate) now: Moment,
    pub(crate) processes: Vec<Process>,
    /// Which requests do not reach etcd.
    pub(crate) withhold: fn(&Request) -> bool,
    pub(crate) withheld: Vec<Withheld>,
    /// Requests that reached etcd.
    pub(crate) requests: usize,
}

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) core: Core,
    sent: VecDeque<(RequestId, Request)>,
    outputs: Vec<Output>,
    watches: BTreeMap<WatchId, (Key, i64, bool)>,
}

impl Town {
    pub(crate) fn of(processes: u64) -> Self {
        let process = |seed| Process {
            core: Core::new(settings(seed + 1)),
            sent: VecDeque::new(),
            outputs: Vec::new(),
            watches: BTreeMap::new(),
        };
        Self {
            store: Etcd::new(),
            now: Moment::after_boot(Duration::from_secs(100)),
            processes: (0..processes).map(process).collect(),
            withhold: |_| false,
            withheld: Vec::new(),
            requests: 0,
        }
    }

    fn submit(&mut self, n: usize, input: Input) {
        let process = &mut self.processes[n];
        for output in stack::handle(&mut process.core, self.now, input).0 {
            match output {
                Output::Send { id, request } => process.sent.push_back((id, request)),
                Output::Watch { id, prefix, from, puts } => {
                    process.watches.insert(id, (prefix, from.get(), puts));
                }
                Output::Unwatch(id) => drop(process.watches.remove(&id)),
                output => process.outputs.push(output),
            }
        }
    }

    /// A call of a task that holds the locks of these calls.
    pub(crate) fn ask(&mut self, n: usize, call: CallId, names: &[&str], holds: &[CallId]) {
        self.ask_for(n, call, names, holds, Wait::Forever);
    }

    pub(crate) fn ask_for(
        &mut self,
        n: usize,
        call: CallId,
        names: &[&str],
        holds: &[CallId],
        wait: Wait,
    ) {
        self.ask_as(n, call, Mode::Exclusive, names, holds, wait);
    }

    pub(crate) fn ask_as(
        &mut self,
        n: usize,
        call: CallId,
        mode: Mode,
        names: &[&str],
        holds: &[CallId],
        wait: Wait,
    ) {
        let name = |name: &&str| Key::from(format!("locks/{name}"));
        let acquire = Acquire {
            call: call.into(),
            names: names.iter().map(name).collect(),
            ttl_secs: TTL,
            mode,
            wait,
            record: format!("{{\"call\":{call}}}").into_bytes().into(),
            holds: holds.iter().map(|call| (*call).into()).collect(),
        };
        self.submit(n, Input::Acquire(acquire));
        self.serve();
    }

    /// A call that is served at once.
    #[track_caller]
    pub(crate) fn take(&mut self, n: usize, call: CallId, names: &[&str]) {
        self.ask(n, call, names, &[]);
        assert!(self.is_granted(n, call), "call {call} has to wait");
    }

    pub(crate) fn release(&mut self, n: usize, call: CallId) {
        let input = Input::Release { call: call.into(), how: Release::Unconfirmed, fenced: false };
        self.submit(n, input);
        self.serve();
    }

    pub(crate) fn cancel(&mut self, n: usize, call: CallId) {
        self.submit(n, Input::Cancel(call.into()));
        self.serve();
    }

    /// etcd answers and the watches report, until all is done.
    pub(crate) fn serve(&mut self) {
        loop {
            let mut quiet = true;
            for n in 0..self.processes.len() {
                while let Some((id, request)) = self.processes[n].sent.pop_front() {
                    quiet = false;
                    if (self.withhold)(&request) {
                        let from = n;
                        self.withheld.push(Withheld { from, id, request });
                    } else {
                        self.carry_out(n, id, &request);
                    }
                }
                quiet &= !self.report(n);
            }
            if quiet {
                return;
            }
        }
    }

    fn carry_out(&mut self, n: usize, request: RequestId, what: &Request) {
        self.requests += 1;
        let result = self.store.apply(self.now, what);
        self.submit(n, Input::Answer { request, result });
    }

    /// The watches of a process report; whether there was anything.
    fn report(&mut self, n: usize) -> bool {
        let revision = self.store.revision();
        let mut reports = Vec::new();
        for (id, (prefix, next, puts)) in &mut self.processes[n].watches {
            let mut events = self.store.events(prefix, *next).unwrap_or_default();
            events.retain(|event| *puts || matches!(event, Event::Delete { .. }));
            *next = (*next).max(revision + 1);
            reports.extend(events.into_iter().map(|event| (*id, event)));
        }
        let any = !reports.is_empty();
        for (watch, event) in reports {
            self.submit(n, Input::Watch { watch, event: Some(event) });
        }
        any
    }

    /// What was withheld reaches etcd after all, and whatever follows does too.
    pub(crate) fn let_through(&mut self) {
        self.withhold = |_| false;
        for Withheld { from, id, request } in std::mem::take(&mut self.withheld) {
            self.carry_out(from, id, &request);
        }
        self.serve();
    }

    /// What was withheld has no answer, whether it was carried out or not.
    pub(crate) fn lose(&mut self, carried_out: bool) {
        for Withheld { from, id, request } in std::mem::take(&mut self.withheld) {
            if carried_out {
                self.store.apply(self.now, &request).expect("an answer");
            }
            let result = Err(unknown());
            let request = id;
            self.submit(from, Input::Answer { request, result });
        }
    }

    /// Time passes.
    pub(crate) fn live(&mut self, time: Duration) {
        for _ in 0..time.as_millis() / 50 {
            self.now = self.now + Duration::from_millis(50);
            for n in 0..self.processes.len() {
                self.submit(n, Input::Tick);
            }
            self.serve();
        }
    }

    /// Time passes until this is so; how long that takes.
    #[track_caller]
    pub(crate) fn until(&mut self, so: impl Fn(&Self) -> bool) -> Duration {
        let since = self.now;
        while !so(self) {
            self.live(Duration::from_millis(50));
            assert!(self.now - since < Duration::from_secs(60), "never");
        }
        self.now - since
    }

    /// A key of another client below a name.
    pub(crate) fn contend(&mut self, key: &str) {
        let lease = self.store.grant(self.now, Duration::from_secs(3600));
        self.store.put(key.as_bytes(), lease);
        self.serve();
    }

    /// What a call got, the last time it was granted.
    pub(crate) fn grant(&self, n: usize, call: CallId) -> &Grant {
        let outputs = self.processes[n].outputs.iter();
        let mut grants = outputs.filter_map(|output| match output {
            Output::Granted(grant) if grant.call.get() == call => Some(grant),
            _ => None,
        });
        grants.next_back().expect("a grant")
    }

    pub(crate) fn is_granted(&self, n: usize, call: CallId) -> bool {
        let mut outputs = self.processes[n].outputs.iter();
        outputs.any(|output| matches!(output, Output::Granted(grant) if grant.call.get() == call))
    }

    /// Why calls were refused, in any process.
    pub(crate) fn refusals(&self) -> Vec<(CallId, &Refused)> {
        let outputs = self.processes.iter().flat_map(|process| &process.outputs);
        outputs
            .filter_map(|output| match output {
                Output::Refused { call, why } => Some((call.get(), why)),
                _ => None,
            })
            .collect()
    }

    /// How often a process has reported that a search left keys out.
    pub(crate) fn bounded(&self, n: usize) -> usize {
        let outputs = self.processes[n].outputs.iter();
        outputs.filter(|output| matches!(output, Output::Bounded)).count()
    }

    /// All keys below a name, the oldest first.
    pub(crate) fn keys(&self, name: &str) -> Vec<String> {
        let mut keys: Vec<&Kv> = self.store.kvs().collect();
        keys.retain(|kv| kv.key.starts_with(format!("locks/{name}/").as_bytes()));
        keys.sort_by_key(|kv| kv.create_revision);
        let text = |kv: &&Kv| String::from_utf8_lossy(&kv.key).into_owned();
        keys.iter().map(text).collect()
    }

    /// The keys that the value of a key lists as held by the task of its call.
    pub(crate) fn holds(&self, key: &str) -> Vec<String> {
        let kv = self.store.kv(key.as_bytes());
        let listed = kv.map(|kv| (kv.create_revision, listed_by(kv)));
        let holds = listed.into_iter().flat_map(|(own, listed)| {
            listed.into_iter().filter(move |(_, created)| *created != own)
        });
        let there = |(key, created): &(Key, Revision)| {
            self.store.kv(key.as_bytes()).is_some_and(|kv| kv.create_revision == *created)
        };
        holds.filter(there).map(|(key, _)| key.to_string()).collect()
    }
}

fn txn(request: &Request) -> Option<&Txn> {
    match request {
        Request::Txn(txn) => Some(txn),
        _ => None,
    }
}

/// Whether a request takes a call out of a cycle: it reads the records of the keys that it relies on.
pub(crate) fn is_abort(request: &Request) -> bool {
    let reads = |op: &Op| matches!(op, Op::Get { values: true, .. });
    let deletes = |op: &Op| matches!(op, Op::Delete(_));
    txn(request).is_some_and(|txn| txn.then.iter().any(reads) && txn.then.iter().any(deletes))
}

/// Whether a request deletes keys below this name, and cuts no cycle.
pub(crate) fn is_delete_of_b(request: &Request) -> bool {
    let deletes = |op: &Op| matches!(op, Op::Delete(key) if key.starts_with("locks/b/"));
    txn(request).is_some_and(|txn| txn.then.iter().any(deletes)) && !is_abort(request)
}

/// Whether a request is a read of a search for cycles.
pub(crate) fn is_search(request: &Request) -> bool {
    let many =
        |op: &Op| matches!(op, Op::Range { limit: Some(Search::CONTENDERS), values: true, .. });
    txn(request).is_some_and(|txn| txn.then.iter().any(many))
}
