//! The sans-IO core: every decision about every lock of a process, as values in and values out.
//!
//! It awaits nothing, reads no clock and opens no socket. The contract is one loop: [`Core::handle`] one input, then drain
//! [`Core::poll`] until it returns `None`, then sleep until [`Core::next_timeout`] at most. The engine runs it against etcd,
//! a simulator may run it against anything.
//!
//! Rule numbers (P1 …) are those of the protocol, summarised in `ARCHITECTURE.md`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::clock::Moment;

pub(crate) mod abort;
pub(crate) mod bundle;
pub(crate) mod call;
pub(crate) mod cycle;
pub(crate) mod deadline;
mod deadlock;
mod deletions;
mod exchanges;
mod graph;
pub(crate) mod handovers;
mod input;
pub(crate) mod lease;
mod looks;
mod losses;
pub(crate) mod mode;
mod output;
mod permits;
pub(crate) mod place;
mod pool;
mod predecessors;
mod publications;
mod puts;
pub(crate) mod queue;
mod queues;
mod record;
mod renewals;
mod repairs;
pub(crate) mod request;
mod retained;
mod seals;
mod shares;
mod shutdown;
#[allow(unexpected_cfgs)] // the simulator sets it
pub(crate) mod steps;
mod timers;
mod tries;
mod trouble;
mod turns;
mod watches;

use bundle::Deletion;
use call::Call;
use deadlock::Deadlocks;
use lease::{Lease, LeaseRef};
use looks::Line;
use queue::Queue;
use request::{Key, Revision};
use retained::Retention;
use shutdown::Shutdown;

pub(crate) use exchanges::{Exchange, UnderWay};
pub(crate) use input::{Acquire, Input, Release, Settings};
pub(crate) use output::{Blocker, Grant, Output, Owned, Refused};
pub(crate) use timers::Timer;

/// One call of `lock(..)`, from the moment it is made until its lock is released.
pub(crate) type CallId = u64;
/// One exchange with etcd.
pub(crate) type RequestId = u64;
/// One watch.
pub(crate) type WatchId = u64;

/// The state of all locks of one process.
#[derive(Debug)]
pub(crate) struct Core {
    settings: Settings,
    /// By their places.
    pub(crate) queues: BTreeMap<Key, Queue>,
    /// Places whose turn it may be, because somebody has left the line.
    next: VecDeque<Key>,
    /// The calls that wait, hold or wait to hear that their keys are gone.
    /// Boxed: their numbers only grow, so the nodes of the tree stay half empty.
    pub(crate) calls: BTreeMap<CallId, Box<Call>>,
    /// How many of them wait, single tries aside.
    waiters: usize,
    pub(crate) leases: BTreeMap<LeaseRef, Lease>,
    /// The leases that calls of a TTL use, the oldest first.
    pool: BTreeMap<i64, Vec<LeaseRef>>,
    pub(crate) deletions: VecDeque<Deletion>,
    deletes_under_way: usize,
    /// What calls have left locked.
    pub(crate) retentions: BTreeMap<CallId, Retention>,
    deletions_after: Option<Moment>,
    /// Deletions, and looks, that failed in a row.
    deletes_failed: u32,
    looks_failed: u32,
    /// Names to look at.
    looks: Line,
    looks_under_way: usize,
    pub(crate) watches: BTreeMap<WatchId, Key>,
    pub(crate) under_way: BTreeMap<RequestId, UnderWay>,
    pub(crate) timers: BTreeSet<(Moment, Timer)>,
    outputs: VecDeque<Output>,
    /// The highest revision any transaction or range answered (rule P35).
    highest: Revision,
    /// The last exchange sent before etcd was found wiped: its answer may still be of the old revisions.
    old: RequestId,
    last_id: u64,
    random: u64,
    deadlocks: Deadlocks,
    shutdown: Option<Shutdown>,
}

/// Names one call may have: a group is put in one transaction, and others are to have room in it (rules P6, P13).
pub(crate) const NAMES: usize = 32;

/// Leases of one TTL: renewals must not grow with the number of locks held (rule P27, invariant I8).
pub(crate) const LEASES: usize = 8;

/// Bundles of one kind that may be under way at a time: the next one fills while these travel (rule P7).
const WINDOW: usize = 2;

impl Core {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            random: settings.seed | 1,
            settings,
            queues: BTreeMap::new(),
            next: VecDeque::new(),
            calls: BTreeMap::new(),
            waiters: 0,
            leases: BTreeMap::new(),
            pool: BTreeMap::new(),
            deletions: VecDeque::new(),
            deletes_under_way: 0,
            retentions: BTreeMap::new(),
            deletions_after: None,
            deletes_failed: 0,
            looks_failed: 0,
            looks: Line::default(),
            looks_under_way: 0,
            watches: BTreeMap::new(),
            under_way: BTreeMap::new(),
            timers: BTreeSet::new(),
            outputs: VecDeque::new(),
            highest: 0,
            old: 0,
            last_id: 0,
            deadlocks: Deadlocks::default(),
            shutdown: None,
        }
    }

    /// Takes one input in; `now` never goes back.
    pub(crate) fn handle(&mut self, now: Moment, input: Input) {
        steps::count(1);
        match input {
            Input::Acquire(acquire) => {
                // A thread that was held up hears of calls before its timers: waits and leases that are over close no circle.
                self.fire(now);
                self.acquire(now, acquire);
            }
            Input::Cancel { call } => self.cancel(now, call),
            Input::Release { call, how, fenced } => self.release(now, call, how, fenced),
            Input::Keep { call, until } => self.keep(call, until),
            Input::Warm { call, ttl_secs } => self.warm(now, call, ttl_secs),
            Input::Answer { request, result } => self.answer(now, request, result),
            Input::Watch { watch, news } => self.news(now, watch, news),
            Input::Shutdown { until } => self.begin_shutdown(now, until),
            Input::Tick => {}
        }
        self.fire(now);
        self.turn_to_next(now);
        self.flush(now);
        self.finish_shutdown(now);
    }

    /// What to do next, if anything.
    pub(crate) fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to call `handle` again at the latest.
    pub(crate) fn next_timeout(&self) -> Option<Moment> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Sends what is ready, as much in one bundle as fits, if the window is free (rule P7): first what others may wait for.
    fn flush(&mut self, now: Moment) {
        self.flush_deletions(now);
        while self.flush_puts(now) {}
        self.flush_looks(now);
    }

    fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// `base`, a tenth more or less, so that processes do not act in step.
    fn jittered(&mut self, base: Duration) -> Duration {
        // xorshift: any spread will do here
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        #[allow(clippy::cast_precision_loss)] // a spread needs no precision
        let share = (self.random % 1000) as f64 / 1000.0;
        base.mul_f64(0.9 + 0.2 * share)
    }

    /// How long to wait before what failed this often in a row is sent again: longer each time, and not in step with
    /// other processes (rule P34).
    fn pause(&mut self, failures: u32) -> Duration {
        self.jittered(Duration::from_millis(50 << failures.min(4)))
    }

    fn refuse(&mut self, call: CallId, why: Refused) {
        self.calls.remove(&call);
        self.outputs.push_back(Output::Refused { call, why });
    }
}
