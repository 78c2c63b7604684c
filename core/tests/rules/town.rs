//! Town: several cores around one etcd, which answers at once, unless the test withholds a request.

use crate::rig::text;
use crate::*;

#[derive(Debug)]
pub(crate) struct Town {
    pub(crate) store: Etcd,
    pub(crate) now: Moment,
    pub(crate) processes: Vec<Rig>,
    /// The process of each call. No two processes have a call with the same number.
    homes: BTreeMap<CallId, usize>,
    /// Which requests do not reach etcd.
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

    /// One process for each name: call 0 holds the first name in process 0, call 1 the second in process 1, and so on.
    pub(crate) fn holding(names: &[&str]) -> Self {
        let mut town = Self::of(names.len() as u64);
        for (n, name) in names.iter().enumerate() {
            town.take(n, n as CallId, &[name]);
        }
        town
    }

    /// Something happens in a process; etcd is there.
    fn at(&mut self, n: usize, what: impl FnOnce(&mut Rig)) {
        let process = &mut self.processes[n];
        process.now = self.now;
        std::mem::swap(&mut process.store, &mut self.store);
        what(process);
        std::mem::swap(&mut process.store, &mut self.store);
    }

    /// A call of a task that holds the locks of these calls.
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
        let holds = holds.iter().map(|call| (*call).into()).collect();
        let acquire = Acquire { mode, wait, ttl_secs: 30, holds, ..ask(call, &names) };
        self.at(n, |process| _ = process.submit(Input::Acquire(acquire)));
        self.serve()
    }

    /// A call that reads `locks/s`.
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

    /// A call that wants one of `of` permits of `locks/p`.
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

    /// etcd answers and the watches report, until all is done.
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

    /// Requests that do not reach etcd, and the process of each.
    pub(crate) fn withheld(&self) -> Vec<(usize, &Request)> {
        let processes = self.processes.iter().enumerate();
        processes.flat_map(|(n, it)| it.sent.iter().map(move |(_, request)| (n, request))).collect()
    }

    pub(crate) fn requests(&self) -> usize {
        self.processes.iter().map(|process| process.requests).sum()
    }

    /// Time passes until a request of this kind is withheld, and it alone.
    #[track_caller]
    pub(crate) fn withholds(&mut self, kind: fn(&Request) -> bool) -> &mut Self {
        self.withhold = kind;
        self.until(|town| town.withheld().len() == 1)
    }

    /// What was withheld reaches etcd after all, and whatever follows does too.
    pub(crate) fn let_through(&mut self) -> &mut Self {
        self.withhold = |_| false;
        self.serve()
    }

    /// What was withheld has no answer, whether it was carried out or not.
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

    /// Time passes until this is so, which it must be within that time.
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

    /// What a call got, the last time it was granted.
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

    /// Why calls were refused, in any process.
    pub(crate) fn refusals(&self) -> Vec<(CallId, &Refused)> {
        let refusals = self.outputs().filter_map(|output| match output {
            Output::Refused { call, why } => Some((call.0, why)),
            _ => None,
        });
        refusals.collect()
    }

    /// The calls that were refused, all of them for a reason of this kind.
    #[track_caller]
    fn refused(&self, kind: fn(&Refused) -> bool) -> Vec<CallId> {
        let refusals = self.refusals();
        assert!(refusals.iter().all(|(_, why)| kind(why)), "{refusals:?}");
        refusals.into_iter().map(|(call, _)| call).collect()
    }

    /// These tries were refused because the name is held, and no other call is refused.
    #[track_caller]
    pub(crate) fn busy(&mut self, calls: &[CallId]) -> &mut Self {
        assert_eq!(self.refused(|why| matches!(why, Refused::Held { .. })), calls);
        self
    }

    /// The calls that were refused for a cycle. No other call is refused.
    #[track_caller]
    pub(crate) fn deadlocked(&self) -> Vec<CallId> {
        self.refused(|why| matches!(why, Refused::Deadlock { .. }))
    }

    /// The only call that is refused within this time, and that for a cycle.
    #[track_caller]
    pub(crate) fn deadlocks_within(&mut self, time: Duration) -> CallId {
        self.within(time, |town| !town.refusals().is_empty());
        match self.deadlocked()[..] {
            [call] => call,
            ref calls => panic!("{calls:?} are refused"),
        }
    }

    /// All keys below a name, the oldest first.
    pub(crate) fn keys(&self, name: &str) -> Vec<String> {
        let mut keys: Vec<_> = self.store.kvs().collect();
        keys.retain(|kv| kv.key.starts_with(format!("locks/{name}/").as_bytes()));
        keys.sort_by_key(|kv| kv.create_revision);
        keys.iter().map(|kv| text(Some(&kv.key))).collect()
    }

    /// The create revision of a key, 0 if there is none.
    pub(crate) fn created(&self, key: &str) -> i64 {
        self.store.kv(key.as_bytes()).map_or(0, |kv| kv.create_revision.get())
    }

    pub(crate) fn value(&self, key: &str) -> String {
        text(self.store.kv(key.as_bytes()).map(|kv| &kv.value))
    }

    /// The keys that are there of those that the value of a key lists as held by the task of its call.
    pub(crate) fn holds(&self, key: &str) -> Vec<String> {
        let Some(kv) = self.store.kv(key.as_bytes()) else { return Vec::new() };
        let listed =
            listed_by(kv).into_iter().filter(|(_, created)| *created != kv.create_revision);
        let there = listed.filter(|(key, created)| self.created(key) == created.get());
        there.map(|(key, _)| key.to_string()).collect()
    }
}

/// Whether a request takes a call out of a cycle: it reads the records of the keys that it relies on.
pub(crate) fn is_abort(request: &Request) -> bool {
    let reads = |op: &Op| matches!(op, Op::Get { values: true, .. });
    operations(request).iter().any(reads) && deletes(request)
}

/// Whether a request is a read of a search for cycles.
pub(crate) fn is_search(request: &Request) -> bool {
    let many =
        |op: &Op| matches!(op, Op::Range { limit: Some(Search::CONTENDERS), values: true, .. });
    operations(request).iter().any(many)
}
