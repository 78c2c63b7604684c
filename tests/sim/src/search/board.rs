//! Board: a bench whose messages all wait until the search selects them.

use std::collections::hash_map::DefaultHasher;
use std::fmt::{self, Write as _};
use std::hash::Hasher;
use std::num::NonZeroU16;
use std::time::Duration;

use crate::world::CallId;
use crate::world::bench::{Bench, Message, Watch};
use crate::world::clients::{Call, Stage};
use crate::world::etcd::{revision_of, unknown};
use crate::world::network::may_arrive_twice;
use etcd_locked_core::{Input, Mode, Moment, RequestId, WatchId};

/// The only name.
const NAME: &str = "locks/a";
/// The shortest TTL that etcd grants, in seconds.
const TTL: i64 = 2;

/// The initial state of a search: the number of clients, and how many of them hold the lock or wait for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opening {
    pub(crate) clients: usize,
    pub(crate) queued: usize,
    /// True if time passes. If it does not, there are fewer choices, so the search goes deeper.
    pub(crate) time: bool,
    pub(crate) modes: Modes,
}

impl fmt::Display for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { clients, queued, time, modes } = self;
        let time = if *time { "goes on" } else { "stands still" };
        write!(f, "{clients} clients, {modes:?}, {queued} hold or wait, time {time}")
    }
}

/// The modes of the calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Modes {
    /// All are exclusive.
    Exclusive,
    /// Every second call is a reader.
    Shared,
    /// All want one of two permits.
    Permits,
}

impl Modes {
    fn of(self, call: CallId) -> Mode {
        match (self, NonZeroU16::new(2)) {
            (Modes::Shared, _) if call.is_multiple_of(2) => Mode::Shared,
            (Modes::Permits, Some(two)) => Mode::Permits(two),
            _ => Mode::Exclusive,
        }
    }
}

/// A choice of what happens next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// A request reaches etcd.
    Arrive(usize),
    /// A response reaches its process.
    Deliver(usize),
    /// A request arrives now, and once more later. The first response counts.
    Twice(usize),
    /// A process gives up a request, which is still under way.
    GiveUp(usize),
    /// A request is given up and never arrives, or a response is lost.
    Lose(usize),
    /// The next event of a watch.
    Event(usize, WatchId),
    Begin(CallId),
    Cancel(CallId),
    End(CallId),
    /// Time passes until the next timer.
    Tick,
    /// Time passes until the next lease expires, and no process notices that before.
    Sleep,
}

/// How often the search may still make these choices. Without limits it would hardly end.
#[derive(Debug)]
struct Budget {
    faults: usize,
    cancels: usize,
    ticks: usize,
    sleeps: usize,
}

#[derive(Debug)]
pub(crate) struct Board {
    bench: Bench,
    budget: Budget,
    calls: u64,
}

impl Board {
    pub(crate) fn new(opening: Opening) -> Self {
        let mut bench = Bench::new(0, opening.clients, 0);
        bench.by_hand = Some(Vec::new());
        // Each client makes one call, the first one two.
        let calls = opening.clients as u64 + 1;
        for call in 0..calls {
            let machine = (call as usize) % opening.clients;
            let (mode, reluctance) = (opening.modes.of(call), Duration::MAX);
            bench.calls.insert(call, Call { machine, mode, reluctance, ..Call::of(NAME, TTL) });
        }
        let (ticks, sleeps) = if opening.time { (2, 1) } else { (0, 0) };
        Self { bench, calls, budget: Budget { faults: 2, cancels: 1, ticks, sleeps } }
    }

    /// Plays the opening: all leases are open, and some calls wait.
    pub(crate) fn open_with(&mut self, opening: Opening) {
        for n in 0..opening.clients {
            let call = etcd_locked_core::CallId(1000 + n as u64);
            self.bench.submit(n, Input::Warm { call, ttl_secs: TTL });
            self.settle();
        }
        for call in 0..opening.queued as u64 {
            self.bench.begin(call);
            self.settle();
        }
    }

    /// Delivers everything that is under way.
    fn settle(&mut self) {
        while let Some(first) = self.under_way().first() {
            let is_request = matches!(first, Message::Request { .. });
            self.take(if is_request { Choice::Arrive(0) } else { Choice::Deliver(0) });
        }
    }

    fn under_way(&self) -> &[Message] {
        self.bench.by_hand.as_deref().unwrap_or_default()
    }

    pub(crate) fn choices(&self) -> Vec<Choice> {
        let mut choices = Vec::new();
        let faults = self.budget.faults > 0;
        for (at, message) in self.under_way().iter().enumerate() {
            match message {
                Message::Request { request, given_up, .. } => {
                    choices.push(Choice::Arrive(at));
                    if faults && !given_up {
                        choices.extend([Choice::GiveUp(at), Choice::Lose(at)]);
                        if may_arrive_twice(request) {
                            choices.push(Choice::Twice(at));
                        }
                    }
                }
                Message::Answer { .. } => {
                    choices.push(Choice::Deliver(at));
                    choices.extend(faults.then_some(Choice::Lose(at)));
                }
            }
        }
        for (n, process) in self.bench.processes.iter().enumerate() {
            let due = |watch: &Watch| watch.next_event(&self.bench.store).is_some();
            let due = process.watches.iter().filter(|(_, watch)| due(watch));
            choices.extend(due.map(|(id, _)| Choice::Event(n, *id)));
        }
        for id in 0..self.calls {
            match self.bench.calls[&id].stage {
                // The calls of one machine follow each other.
                Stage::Idle if !self.busy(id) => choices.push(Choice::Begin(id)),
                Stage::Waiting if self.budget.cancels > 0 => choices.push(Choice::Cancel(id)),
                Stage::Holding(_) => choices.push(Choice::End(id)),
                _ => {}
            }
        }
        choices.extend((self.budget.ticks > 0).then_some(Choice::Tick));
        choices.extend((self.budget.sleeps > 0).then_some(Choice::Sleep));
        choices
    }

    /// Returns true if an earlier call of the same client is not over.
    fn busy(&self, id: CallId) -> bool {
        let clients = self.bench.machines.len() as u64;
        id >= clients && !matches!(self.bench.calls[&(id - clients)].stage, Stage::Done)
    }

    pub(crate) fn take(&mut self, choice: Choice) {
        match choice {
            Choice::Arrive(at) => self.arrive(at, false),
            Choice::Twice(at) => {
                self.budget.faults -= 1;
                self.arrive(at, true);
            }
            Choice::Deliver(at) => {
                if let Message::Answer { to, id, result } = self.messages().remove(at) {
                    self.bench.submit(to, Input::Answer { request: id, result });
                }
            }
            Choice::GiveUp(at) => {
                self.budget.faults -= 1;
                if let Message::Request { from, id, request, .. } = self.messages().remove(at) {
                    let given_up = true;
                    self.messages().push(Message::Request { from, id, request, given_up });
                    self.fail(from, id);
                }
            }
            Choice::Lose(at) => {
                self.budget.faults -= 1;
                let (Message::Request { from: to, id, .. } | Message::Answer { to, id, .. }) =
                    self.messages().remove(at);
                self.fail(to, id);
            }
            Choice::Event(n, id) => self.deliver_event(n, id),
            Choice::Begin(call) => self.bench.begin(call),
            Choice::Cancel(call) => {
                self.budget.cancels -= 1;
                self.bench.cancel(call);
            }
            Choice::End(call) => self.bench.end_body(call),
            Choice::Tick => {
                self.budget.ticks -= 1;
                let timers = self.bench.processes.iter();
                let timers = timers.filter_map(|p| p.core.next_timeout());
                let next = timers.chain(self.bench.store.next_expiry()).min();
                self.until(next, true);
            }
            Choice::Sleep => {
                self.budget.sleeps -= 1;
                self.until(self.bench.store.next_expiry(), false);
            }
        }
        // Sorted, so that boards that differ only in the order of sending have the same digest.
        self.messages().sort_by_key(Message::order);
        self.bench.check();
    }

    fn until(&mut self, next: Option<Moment>, notice: bool) {
        let Some(next) = next else { return };
        self.bench.now = self.bench.now.max(next);
        self.bench.store.expire(self.bench.now);
        self.bench.store.removed.clear();
        if !notice {
            return;
        }
        for n in 0..self.bench.processes.len() {
            let due = self.bench.processes[n].core.next_timeout();
            if due.is_some_and(|at| at <= self.bench.now) {
                self.bench.submit(n, Input::Tick);
            }
        }
    }

    fn arrive(&mut self, at: usize, again: bool) {
        let message = self.messages().remove(at);
        if let Message::Request { from, id, request, given_up } = message {
            if again {
                let given_up = true;
                self.messages().push(Message::Request {
                    from,
                    id,
                    request: request.clone(),
                    given_up,
                });
            }
            let back = (!given_up).then_some(self.bench.now);
            self.bench.arrive(from, id, request, back);
        }
    }

    fn fail(&mut self, to: usize, id: RequestId) {
        let result = Err(unknown());
        self.bench.submit(to, Input::Answer { request: id, result });
    }

    /// Delivers the first event of the next revision that a watch has not delivered.
    fn deliver_event(&mut self, n: usize, id: WatchId) {
        let watch = self.bench.processes[n].watches.get_mut(&id).expect("a watch");
        let event = watch.next_event(&self.bench.store).expect("an event");
        watch.next = revision_of(&event) + 1;
        self.bench.submit(n, Input::Watch { watch: id, event: Some(event) });
    }

    fn messages(&mut self) -> &mut Vec<Message> {
        self.bench.by_hand.as_mut().expect("a bench by hand")
    }

    /// Returns a digest: boards with the same digest lead to the same states.
    pub(crate) fn digest(&self) -> u64 {
        let mut digest = Digest(DefaultHasher::new());
        let bench = &self.bench;
        // Writing to a hasher cannot fail.
        let _ = write!(digest, "{:?}{:?}", bench.now, self.budget);
        for process in &bench.processes {
            let _ = write!(digest, "{:?}", process.core);
            for (id, watch) in &process.watches {
                let events = watch.events(&bench.store);
                let _ = write!(digest, "{}{events:?}", id.0);
            }
        }
        let stages: Vec<_> = bench.calls.values().map(|call| &call.stage).collect();
        let (store, kvs) = (&bench.store, bench.store.kvs().collect::<Vec<_>>());
        let _ = write!(digest, "{stages:?}{}{:?}{kvs:?}", store.revision(), store.renewed);
        let _ = write!(digest, "{:?}{:?}", bench.by_hand, bench.tokens);
        digest.0.finish()
    }
}

/// A hasher that accepts text.
struct Digest(DefaultHasher);

impl fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}
