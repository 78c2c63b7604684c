//! Several cores around one etcd: what they ask is answered at once, unless the test holds it back.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use etcd_locked_core::Moment;
use etcd_locked_core::Mode;
use etcd_locked_core::{Compare, Event, Key, Op, Request, Revision, Txn, WatchEvent};
use etcd_locked_core::{
    Acquire, CallId, Core, Grant, Input, Output, Refused, Release, RequestId, Settings, WatchId,
};
use etcd_locked_core::Wait;
use crate::world::etcd::{Etcd, unknown};

const TTL: i64 = 30;

/// A request that is held back.
#[derive(Debug)]
pub(super) struct Withheld {
    pub(super) from: usize,
    pub(super) id: RequestId,
    pub(super) request: Request,
}

#[derive(Debug)]
pub(super) struct Town {
    pub(super) store: Etcd,
    pub(super) now: Moment,
    pub(super) processes: Vec<Process>,
    /// Which requests do not get through.
    pub(super) withhold: fn(&Request) -> bool,
    pub(super) withheld: Vec<Withheld>,
    /// Requests that got through.
    pub(super) requests: usize,
}

#[derive(Debug)]
pub(super) struct Process {
    pub(super) core: Core,
    sent: VecDeque<(RequestId, Request)>,
    told: Vec<Output>,
    watches: BTreeMap<WatchId, (Key, Revision, bool)>,
}

impl Town {
    pub(super) fn of(processes: u64) -> Self {
        let process = |seed| Process {
            core: Core::new(Settings {
                prefix: "locks/".into(),
                connect_timeout: Duration::from_secs(5),
            silence: crate::world::etcd::silence(),
                bodies_per_session: 1_000,
                near: 16,
                max_waiters: None,
                seed: seed + 1,
            }),
            sent: VecDeque::new(),
            told: Vec::new(),
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

    fn tell(&mut self, n: usize, input: Input) {
        let process = &mut self.processes[n];
        process.core.handle(self.now, input);
        while let Some(output) = process.core.poll() {
            match output {
                Output::Send { id, request } => process.sent.push_back((id, request)),
                Output::Watch {
                    id,
                    prefix,
                    from,
                    puts,
                } => {
                    process.watches.insert(id, (prefix, from, puts));
                }
                Output::Unwatch { id } => drop(process.watches.remove(&id)),
                told => process.told.push(told),
            }
        }
    }

    /// A call of a task that holds the locks of these calls.
    pub(super) fn ask(&mut self, n: usize, call: CallId, names: &[&str], holds: &[CallId]) {
        self.ask_for(n, call, names, holds, Wait::Forever);
    }

    pub(super) fn ask_for(
        &mut self,
        n: usize,
        call: CallId,
        names: &[&str],
        holds: &[CallId],
        wait: Wait,
    ) {
        self.ask_as(n, call, Mode::Exclusive, names, holds, wait);
    }

    pub(super) fn ask_as(
        &mut self,
        n: usize,
        call: CallId,
        mode: Mode,
        names: &[&str],
        holds: &[CallId],
        wait: Wait,
    ) {
        let acquire = Acquire {
            call,
            names: names
                .iter()
                .map(|name| format!("locks/{name}").into())
                .collect(),
            ttl_secs: TTL,
            mode,
            wait,
            record: format!("{{\"call\":{call}}}").into_bytes().into(),
            holds: holds.to_vec(),
        };
        self.tell(n, Input::Acquire(acquire));
        self.serve();
    }

    /// A call that is served at once.
    pub(super) fn take(&mut self, n: usize, call: CallId, names: &[&str]) {
        self.ask(n, call, names, &[]);
        assert!(self.is_granted(n, call), "call {call} has to wait");
    }

    pub(super) fn release(&mut self, n: usize, call: CallId) {
        let input = Input::Release {
            call,
            how: Release::Unconfirmed,
            fenced: false,
        };
        self.tell(n, input);
        self.serve();
    }

    pub(super) fn cancel(&mut self, n: usize, call: CallId) {
        self.tell(n, Input::Cancel { call });
        self.serve();
    }

    /// etcd answers, and the watches tell, until all is said.
    pub(super) fn serve(&mut self) {
        loop {
            let mut quiet = true;
            for n in 0..self.processes.len() {
                while let Some((id, request)) = self.processes[n].sent.pop_front() {
                    quiet = false;
                    if (self.withhold)(&request) {
                        self.withheld.push(Withheld {
                            from: n,
                            id,
                            request,
                        });
                    } else {
                        self.carry_out(n, id, &request);
                    }
                }
                quiet &= !self.spread_news(n);
            }
            if quiet {
                return;
            }
        }
    }

    fn carry_out(&mut self, n: usize, id: RequestId, request: &Request) {
        self.requests += 1;
        let result = self.store.apply(self.now, request);
        let answer = Input::Answer {
            request: id,
            result,
        };
        self.tell(n, answer);
    }

    fn spread_news(&mut self, n: usize) -> bool {
        let revision = self.store.revision();
        let mut news = Vec::new();
        for (id, (prefix, next, puts)) in &mut self.processes[n].watches {
            let mut events = self.store.events(prefix, *next).unwrap_or_default();
            events.retain(|event| *puts || matches!(event, Event::Delete { .. }));
            *next = (*next).max(revision + 1);
            news.extend(events.into_iter().map(|event| (*id, event)));
        }
        let any = !news.is_empty();
        for (watch, event) in news {
            let news = WatchEvent::Changed(event);
            self.tell(n, Input::Watch { watch, news });
        }
        any
    }

    /// What was held back comes through after all, or its answer is lost, or it never comes.
    pub(super) fn let_through(&mut self) {
        for Withheld { from, id, request } in std::mem::take(&mut self.withheld) {
            self.carry_out(from, id, &request);
        }
        self.serve();
    }

    pub(super) fn lose(&mut self, carried_out: bool) {
        for Withheld { from, id, request } in std::mem::take(&mut self.withheld) {
            if carried_out {
                self.store.apply(self.now, &request).unwrap();
            }
            let result = Err(unknown());
            self.tell(
                from,
                Input::Answer {
                    request: id,
                    result,
                },
            );
        }
    }

    /// Time passes.
    pub(super) fn live(&mut self, time: Duration) {
        for _ in 0..time.as_millis() / 50 {
            self.now = self.now + Duration::from_millis(50);
            for n in 0..self.processes.len() {
                self.tell(n, Input::Tick);
            }
            self.serve();
        }
    }

    /// Time passes until this is so; how long that takes.
    pub(super) fn until(&mut self, so: impl Fn(&Self) -> bool) -> Duration {
        let since = self.now;
        while !so(self) {
            self.live(Duration::from_millis(50));
            assert!(self.now - since < Duration::from_secs(60), "never");
        }
        self.now - since
    }

    /// A key below a name that somebody else has put.
    pub(super) fn contend(&mut self, key: &str) {
        let lease = self.store.grant(self.now, Duration::from_secs(3600));
        self.store.put(key.as_bytes(), lease);
        self.serve();
    }

    /// What a call has, the last time it was granted.
    pub(super) fn grant(&self, n: usize, call: CallId) -> &Grant {
        let told = self.processes[n].told.iter();
        let mut grants = told.filter_map(|output| match output {
            Output::Granted(grant) if grant.call == call => Some(grant),
            _ => None,
        });
        grants.next_back().expect("a grant")
    }

    pub(super) fn is_granted(&self, n: usize, call: CallId) -> bool {
        let mut told = self.processes[n].told.iter();
        told.any(|output| matches!(output, Output::Granted(grant) if grant.call == call))
    }

    /// Why calls were refused, in any process.
    pub(super) fn refusals(&self) -> Vec<(CallId, &Refused)> {
        let told = self.processes.iter().flat_map(|process| &process.told);
        told.filter_map(|output| match output {
            Output::Refused { call, why } => Some((*call, why)),
            _ => None,
        })
        .collect()
    }

    /// The value of a key says this.
    pub(super) fn says(&self, key: &str, what: &str) -> bool {
        let kv = self.store.kv(key.as_bytes());
        kv.is_some_and(|kv| String::from_utf8_lossy(&kv.value).contains(what))
    }

    /// All keys below a name, the oldest first.
    pub(super) fn keys(&self, name: &str) -> Vec<String> {
        let family = format!("locks/{name}/");
        let mut keys: Vec<_> = self.store.kvs().collect();
        keys.retain(|kv| kv.key.starts_with(family.as_bytes()));
        keys.sort_by_key(|kv| kv.create_revision);
        let text = |kv: &&etcd_locked_core::Kv| String::from_utf8_lossy(&kv.key).into_owned();
        keys.iter().map(text).collect()
    }
}

fn txn(request: &Request) -> Option<&Txn> {
    match request {
        Request::Txn(txn) => Some(txn),
        _ => None,
    }
}

/// Whether it takes a call out of a circle.
pub(super) fn is_abort(request: &Request) -> bool {
    txn(request).is_some_and(|txn| {
        let key = |compare: &Compare| match compare {
            Compare::CreateRevision { key, .. } => Some(key.clone()),
            _ => None,
        };
        let other = |compare: &Compare, of: &Key| matches!(compare, Compare::ModRevision { key, .. } if key != of);
        let created = txn.when.iter().find_map(key);
        created.is_some_and(|of| txn.when.iter().any(|compare| other(compare, &of)))
    })
}

/// Whether it writes on keys that are held.
pub(super) fn is_publication(request: &Request) -> bool {
    txn(request).is_some_and(|txn| {
        let of_lock = |op: &Op| matches!(op, Op::Put { key, .. } if !key.starts_with("locks%s/"));
        txn.then.iter().all(of_lock) && !txn.then.is_empty() && !txn.or_else.is_empty()
    })
}

/// Whether it looks for a circle.
pub(super) fn is_search(request: &Request) -> bool {
    let reads_many = |op: &Op| {
        matches!(
            op,
            Op::Range {
                limit: 2..,
                older_than: Some(_),
                ..
            }
        )
    };
    txn(request).is_some_and(|txn| txn.then.iter().any(reads_many))
}
