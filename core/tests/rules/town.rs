//! Town: several cores around one etcd, which responds at once unless the test withholds a request.

use crate::rig::text;
use crate::*;

#[derive(Debug)]
pub(crate) struct Town {
    pub(crate) store: Etcd,
    pub(crate) now: Moment,
    pub(crate) processes: Vec<Rig>,
    /// The process of each call. Call numbers are unique across processes.
    homes: BTreeMap<CallId, usize>,
    /// Selects the requests that do not reach etcd.
    pub(crate) withhold: fn(&Request) -> bool,
}

impl Town {
    pub(crate) fn of(processes: u64) -> Self {
        let processes: Vec<Rig> = (1..=processes).map(|seed| Rig::with(settings(seed))).collect();
        Self {
            store: Etcd::new(),
            now: processes[0].now,
            processes,
            homes: BTreeMap::new(),
            withhold: |_| false,
        }
    }

    /// Makes one process for each name: call 0 holds the first name in process 0, call 1 the second in process 1, and so on.
    pub(crate) fn holding(names: &[&str]) -> Self {
        let mut town = Self::of(names.len() as u64);
        for (n, name) in names.iter().enumerate() {
            town.take(n, n as CallId, &[name]);
        }
        town
    }

    /// Acts in a process while etcd responds.
    fn at(&mut self, n: usize, what: impl FnOnce(&mut Rig)) {
        let process = &mut self.processes[n];
        process.now = self.now;
        std::mem::swap(&mut process.store, &mut self.store);
        what(process);
        std::mem::swap(&mut process.store, &mut self.store);
    }

    /// Makes a call whose task holds the locks of these calls.
    pub(crate) fn ask(
        &mut self,
        n: usize,
        call: CallId,
        names: &[&str],
        holds: &[CallId],
    ) -> &mut Self {
        self.ask_as(n, call, Mode::Exclusive, names, holds, Wait::Forever)
    }

    pub(crate) fn ask_as(
        &mut self,
        n: usize,
        call: CallId,
        mode: Mode,
        names: &[&str],
        holds: &[CallId],
        wait: Wait,
    ) -> &mut Self {
        let names: Vec<String> = names.iter().map(|name| format!("locks/{name}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.homes.insert(call, n);
        let holds = holds.iter().map(|call| Id(*call)).collect();
        let acquire = Acquire { mode, wait, ttl_secs: 30, holds, ..ask(call, &names) };
        self.at(n, |process| _ = process.submit(Input::Acquire(acquire)));
        self.serve()
    }

    /// Makes a call that reads `locks/s`.
    pub(crate) fn read(&mut self, n: usize, call: CallId) -> &mut Self {
        self.ask_as(n, call, Mode::Shared, &["s"], &[], Wait::Forever)
    }

    pub(crate) fn read_inside(&mut self, n: usize, call: CallId, outer: CallId) -> &mut Self {
        self.ask_as(n, call, Mode::Shared, &["s"], &[outer], Wait::Forever)
    }

    pub(crate) fn try_to_read(&mut self, n: usize, call: CallId) -> &mut Self {
        self.ask_as(n, call, Mode::Shared, &["s"], &[], Wait::Once)
    }

    pub(crate) fn write(&mut self, n: usize, call: CallId) -> &mut Self {
        self.ask(n, call, &["s"], &[])
    }

    /// Makes a call for one of `of` permits of `locks/p`.
    pub(crate) fn permit(&mut self, n: usize, call: CallId, of: u16) -> &mut Self {
        self.ask_as(n, call, permits(of), &["p"], &[], Wait::Forever)
    }

    pub(crate) fn try_permit(&mut self, n: usize, call: CallId, of: u16) -> &mut Self {
        self.ask_as(n, call, permits(of), &["p"], &[], Wait::Once)
    }

    #[track_caller]
    pub(crate) fn take(&mut self, n: usize, call: CallId, names: &[&str]) -> &mut Self {
        self.ask(n, call, names, &[]);
        assert!(self.is_granted(call), "call {call} has to wait");
        self
    }

    pub(crate) fn release(&mut self, call: CallId) -> &mut Self {
        let how = Release::Unconfirmed;
        self.at(self.homes[&call], |process| _ = process.release_as(call, how, false));
        self.serve()
    }

    pub(crate) fn cancel(&mut self, call: CallId) -> &mut Self {
        self.at(self.homes[&call], |process| _ = process.cancel(call));
        self.serve()
    }

    /// Lets etcd respond and the watches report, until nothing is left to do.
    pub(crate) fn serve(&mut self) -> &mut Self {
        let withhold = self.withhold;
        let mut quiet = false;
        while !quiet {
            quiet = true;
            for n in 0..self.processes.len() {
                self.at(n, |process| {
                    quiet &= process.under_way(|request| !withhold(request)) == 0;
                    process.serve_all(|request| !withhold(request));
                    quiet &= !process.report_since(0);
                });
            }
        }
        self
    }

    /// Returns the withheld requests, with the process of each.
    pub(crate) fn withheld(&self) -> Vec<(usize, &Request)> {
        let processes = self.processes.iter().enumerate();
        processes.flat_map(|(n, it)| it.sent.iter().map(move |(_, request)| (n, request))).collect()
    }

    pub(crate) fn requests(&self) -> usize {
        self.processes.iter().map(|process| process.requests).sum()
    }

    /// Lets time pass until exactly one request, of this kind, is withheld.
    #[track_caller]
    pub(crate) fn withholds(&mut self, kind: fn(&Request) -> bool) -> &mut Self {
        self.withhold = kind;
        self.until(|town| town.withheld().len() == 1)
    }

    pub(crate) fn let_through(&mut self) -> &mut Self {
        self.withhold = |_| false;
        self.serve()
    }

    /// Fails the withheld requests without a response, after etcd has carried them out or not.
    pub(crate) fn lose(&mut self, carried_out: bool) -> &mut Self {
        self.withhold = |_| false;
        for n in 0..self.processes.len() {
            self.at(n, |process| {
                for (_, request) in process.sent.iter().filter(|_| carried_out) {
                    process.store.apply(process.now, request).expect("an answer");
                }
                process.fail_all(unknown);
            });
        }
        self
    }

    pub(crate) fn live(&mut self, time: Duration) -> &mut Self {
        for _ in 0..time.as_millis() / 50 {
            self.now = self.now + millis(50);
            for n in 0..self.processes.len() {
                self.at(n, |process| _ = process.pass(Duration::ZERO));
            }
            self.serve();
        }
        self
    }

    /// Lets time pass until this is true. Fails if that takes too long.
    #[track_caller]
    pub(crate) fn within(&mut self, time: Duration, so: impl Fn(&Self) -> bool) -> &mut Self {
        let since = self.now;
        while !so(self) {
            self.live(millis(50));
            assert!(self.now - since < time, "not within {time:?}");
        }
        self
    }

    #[track_caller]
    pub(crate) fn until(&mut self, so: impl Fn(&Self) -> bool) -> &mut Self {
        self.within(60 * SECOND, so)
    }

    #[track_caller]
    pub(crate) fn grants(&mut self, call: CallId) -> &mut Self {
        self.until(|town| town.is_granted(call))
    }

    pub(crate) fn contend(&mut self, key: &str) -> &mut Self {
        let lease = self.store.grant(self.now, 3600 * SECOND);
        self.store.put(key.as_bytes(), lease);
        self.serve()
    }

    pub(crate) fn outputs(&self) -> impl DoubleEndedIterator<Item = &Output> {
        self.processes.iter().flat_map(|process| &process.outputs)
    }

    pub(crate) fn grant(&self, call: CallId) -> &Grant {
        let mut grants = self.outputs().filter_map(|output| match output {
            Output::Granted(grant) if grant.call.0 == call => Some(grant),
            _ => None,
        });
        grants.next_back().expect("a grant")
    }

    pub(crate) fn is_granted(&self, call: CallId) -> bool {
        let is = |output: &Output| matches!(output, Output::Granted(it) if it.call.0 == call);
        self.outputs().any(is)
    }

    #[track_caller]
    pub(crate) fn granted(&mut self, calls: &[CallId]) -> &mut Self {
        calls.iter().for_each(|call| assert!(self.is_granted(*call), "call {call} waits"));
        self
    }

    #[track_caller]
    pub(crate) fn waits(&mut self, calls: &[CallId]) -> &mut Self {
        calls.iter().for_each(|call| assert!(!self.is_granted(*call), "call {call} is granted"));
        self
    }

    pub(crate) fn refusals(&self) -> Vec<(CallId, &Refused)> {
        let refusals = self.outputs().filter_map(|output| match output {
            Output::Refused { call, why } => Some((call.0, why)),
            _ => None,
        });
        refusals.collect()
    }

    /// Returns the refused calls. All must be refused for a reason of this kind.
    #[track_caller]
    fn refused(&self, kind: fn(&Refused) -> bool) -> Vec<CallId> {
        let refusals = self.refusals();
        assert!(refusals.iter().all(|(_, why)| kind(why)), "{refusals:?}");
        refusals.into_iter().map(|(call, _)| call).collect()
    }

    /// Checks that these tries were refused because the name is held, and that no other call was refused.
    #[track_caller]
    pub(crate) fn busy(&mut self, calls: &[CallId]) -> &mut Self {
        assert_eq!(self.refused(|why| matches!(why, Refused::Held { .. })), calls);
        self
    }

    /// Returns the calls that were refused for a cycle. No other call may be refused.
    #[track_caller]
    pub(crate) fn deadlocked(&self) -> Vec<CallId> {
        self.refused(|why| matches!(why, Refused::Deadlock { .. }))
    }

    /// Returns the only call that is refused within this time, for a cycle.
    #[track_caller]
    pub(crate) fn deadlocks_within(&mut self, time: Duration) -> CallId {
        self.within(time, |town| !town.refusals().is_empty());
        match self.deadlocked()[..] {
            [call] => call,
            ref calls => panic!("{calls:?} are refused"),
        }
    }

    pub(crate) fn keys(&self, name: &str) -> Vec<String> {
        let mut keys: Vec<_> = self.store.kvs().collect();
        keys.retain(|kv| kv.key.starts_with(format!("locks/{name}/").as_bytes()));
        keys.sort_by_key(|kv| kv.create_revision);
        keys.iter().map(|kv| text(Some(&kv.key))).collect()
    }

    /// Returns the create revision of a key, 0 if it does not exist.
    pub(crate) fn created(&self, key: &str) -> i64 {
        self.store.kv(key.as_bytes()).map_or(0, |kv| kv.create_revision.get())
    }

    pub(crate) fn value(&self, key: &str) -> String {
        text(self.store.kv(key.as_bytes()).map(|kv| &kv.value))
    }

    /// Returns the existing keys that a key's value lists as held by its call's task.
    pub(crate) fn holds(&self, key: &str) -> Vec<String> {
        let Some(kv) = self.store.kv(key.as_bytes()) else { return Vec::new() };
        let listed =
            listed_by(kv).into_iter().filter(|(_, created)| *created != kv.create_revision);
        let there = listed.filter(|(key, created)| self.created(key) == created.get());
        there.map(|(key, _)| key.to_string()).collect()
    }
}

/// Returns true if a request is an abort, which reads the records of the cycle's held keys.
pub(crate) fn is_abort(request: &Request) -> bool {
    let reads = |op: &Op| matches!(op, Op::Get { values: true, .. });
    operations(request).iter().any(reads) && deletes(request)
}

/// Returns true if a request is a read of a search for cycles.
pub(crate) fn is_search(request: &Request) -> bool {
    let many =
        |op: &Op| matches!(op, Op::Range { limit: Some(Search::CONTENDERS), values: true, .. });
    operations(request).iter().any(many)
}
