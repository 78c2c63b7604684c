//! The sans-IO core: every decision about every lock of a process, as values in and values out.
//!
//! It awaits nothing, reads no clock and opens no socket. The contract is one loop: [`Core::handle`] one input, then drain
//! [`Core::poll`] until it returns `None`, then sleep until [`Core::next_timeout`] at most. The engine runs it against etcd,
//! a simulator may run it against anything.
//!
//! Rule numbers (P1 …) are those of the protocol, summarised in `ARCHITECTURE.md`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::error::LossCause;
use crate::site::Wait;

pub(crate) mod abort;
pub(crate) mod bundle;
pub(crate) mod call;
pub(crate) mod cycle;
pub(crate) mod deadline;
mod deadlock;
mod deletions;
mod graph;
pub(crate) mod handovers;
pub(crate) mod lease;
mod looks;
pub(crate) mod mode;
pub(crate) mod place;
mod pool;
mod predecessors;
mod publications;
mod puts;
pub(crate) mod queue;
mod queues;
mod record;
mod repairs;
pub(crate) mod request;
mod retained;
mod seals;
mod shares;
mod shutdown;
mod tries;
mod turns;

use abort::Abort;
use bundle::{Deletion, Look};
use call::{Bid, Call};
use deadline::Deadline;
use deadlock::Deadlocks;
use lease::{Lease, LeaseRef};
use looks::Line;
use mode::Mode;
use queue::Queue;
use record::Incarnation;
use request::{Cause, Failure, Key, Request, Response, Revision, WatchNews};
use retained::Retention;
use shutdown::Shutdown;

/// One call of `lock(..)`, from the moment it is made until its lock is released.
pub(crate) type CallId = u64;
/// One exchange with etcd.
pub(crate) type RequestId = u64;
/// One watch.
pub(crate) type WatchId = u64;

/// What a core is told once.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// What all keys begin with; ends in `/`.
    pub(crate) prefix: Key,
    /// How long a call waits for etcd to be reached at all.
    pub(crate) connect_timeout: Duration,
    /// Bodies under one lease, before the next gets some (rule P27).
    pub(crate) bodies_per_lease: usize,
    /// Calls that may wait at a time; `None`: any number.
    pub(crate) max_waiters: Option<usize>,
    /// Seeds the jitter, so that processes do not read in step.
    pub(crate) seed: u64,
}

/// What happens to a core.
#[derive(Debug)]
pub(crate) enum Input {
    /// A call wants its names.
    Acquire(Acquire),
    /// A call that waits has gone away.
    Cancel { call: CallId },
    /// The body of a call has been dropped. `fenced`: somebody relies on the keys going with the body: they are not handed
    /// on (rule P22).
    Release {
        call: CallId,
        how: Release,
        fenced: bool,
    },
    /// The body of a call has begun, and its names are to stay locked until then, whenever it ends (rule P39).
    Keep { call: CallId, until: Moment },
    /// Open a lease of this TTL and say so: etcd can be reached, and we may write there.
    Warm { call: CallId, ttl_secs: i64 },
    /// etcd answered, or did not.
    Answer {
        request: RequestId,
        result: Result<Response, Failure>,
    },
    /// A watch told something.
    Watch { watch: WatchId, news: WatchNews },
    /// No new locks; bodies have until `until`.
    Shutdown { until: Moment },
    /// Time has passed.
    Tick,
}

/// When the keys of a call go whose body has gone, unless another call takes them over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Release {
    /// At once; and somebody waits to hear it.
    Confirmed,
    /// At once.
    Unheard,
    /// In a moment: who calls again at once finds them still here.
    Lingering,
}

/// A call that wants names: all of them, or none (rule P13).
#[derive(Debug)]
pub(crate) struct Acquire {
    pub(crate) call: CallId,
    /// Prefix and rendered name, without a trailing `/`: at least one, at most [`NAMES`], each once.
    pub(crate) names: Vec<Key>,
    pub(crate) ttl_secs: i64,
    /// Of all its names.
    pub(crate) mode: Mode,
    pub(crate) wait: Wait,
    /// The holder record.
    pub(crate) record: Arc<[u8]>,
    /// The calls whose locks the calling task holds; where there are any, the call is nested.
    pub(crate) holds: Vec<CallId>,
}

/// What a core wants done.
#[derive(Debug)]
pub(crate) enum Output {
    /// Exchange this with etcd and bring the answer.
    Send { id: RequestId, request: Request },
    /// Watch all keys below the prefix from this revision on: their deletions, and if asked also what is put.
    Watch {
        id: WatchId,
        prefix: Key,
        from: Revision,
        puts: bool,
    },
    /// Stop that watch.
    Unwatch { id: WatchId },
    /// The call has its lock.
    Granted(Grant),
    /// The call does not get its lock.
    Refused { call: CallId, why: Refused },
    /// The call has lost its lock: its body must not be polled again.
    Lost { call: CallId, cause: LossCause },
    /// The key of a call is gone; or it is not known to be.
    Released {
        call: CallId,
        result: Result<(), Refused>,
    },
    /// The lease a [`Input::Warm`] asked for is open.
    Ready { call: CallId },
    /// The shutdown is complete.
    Finished,
}

/// The locks of a call were taken.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) call: CallId,
    /// In the order of the call's names.
    pub(crate) owned: Vec<Owned>,
    pub(crate) deadline: Arc<Deadline>,
}

/// A lock that was taken.
#[derive(Debug, Clone)]
pub(crate) struct Owned {
    pub(crate) key: Key,
    pub(crate) created: Revision,
    /// The token's revision (rule P21).
    pub(crate) revision: Revision,
    /// How often the key was handed on in this process since (rule P22).
    pub(crate) handover: u16,
}

/// Why a call is not served.
#[derive(Debug, Clone)]
pub(crate) enum Refused {
    /// One try, and the name was taken.
    Held {
        /// Which of the call's names, counted from 0.
        name: usize,
        holder: Option<Arc<[u8]>>,
    },
    /// The wait was over.
    Timeout {
        /// Which of the call's names, counted from 0.
        name: usize,
        holder: Option<Arc<[u8]>>,
        waited: Duration,
    },
    /// It wants another number of permits than others, who came first (rule P37).
    Mismatch {
        /// Which of the call's names, counted from 0.
        name: usize,
        /// Their number.
        theirs: NonZeroU16,
        holder: Option<Arc<[u8]>>,
    },
    /// Its task holds what others wait for, and those hold what it waits for (rule P38).
    Deadlock {
        /// Which of the call's names, counted from 0.
        name: usize,
        /// Who keeps the call waiting, and who keeps that one, and so on: the last is its own task.
        cycle: Arc<[Blocker]>,
    },
    /// As many calls as may wait do so already.
    Overloaded,
    /// The lock was lost before its release was confirmed.
    Lost { cause: LossCause },
    /// No new locks.
    ShuttingDown,
    /// etcd's user may not use the name's key.
    PermissionDenied(Cause),
    /// etcd's user may not use the session keys (rule P10b).
    SessionDenied(Cause),
    /// etcd could not be reached, or refused.
    Backend(Cause),
}

/// One of a circle of calls that wait for each other: what it has, or is before others for, and its record.
#[derive(Debug, Clone)]
pub(crate) struct Blocker {
    pub(crate) key: Key,
    pub(crate) record: Arc<[u8]>,
}

/// What is under way at etcd.
#[derive(Debug)]
pub(crate) enum Exchange {
    Grant(LeaseRef),
    Renewal(LeaseRef),
    Revoke,
    Seal(LeaseRef),
    Put {
        lease: LeaseRef,
        bids: Vec<Bid>,
    },
    Try {
        lease: LeaseRef,
        bid: Bid,
        call: CallId,
    },
    Delete(Vec<Deletion>),
    Look(Vec<Look>),
    /// A lease for keys that stay after their call; then the keys under it (rule P39).
    Reserve(CallId),
    Retain(CallId),
    Repair {
        name: Key,
        created: Revision,
    },
    /// Why is the lease gone?
    Autopsy(LeaseRef),
    /// What the task of a holder depends on, written on the holder's keys.
    Publish {
        holder: CallId,
        waits: BTreeSet<Incarnation>,
    },
    Search(CallId),
    Abort(Box<Abort>),
}

#[derive(Debug)]
pub(crate) struct UnderWay {
    pub(crate) exchange: Exchange,
    sent: Moment,
    /// The highest revision known when it was sent: a lower answer is stale, or etcd was wiped (rules P20, P35).
    floor: Revision,
}

/// What a point in time is good for. A timer that is no longer wanted fires and finds nothing to do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The call's wait is over.
    Wait(CallId),
    /// The release has waited long enough for its confirmation.
    Confirm(CallId),
    /// Nobody has come for what the call had.
    Linger(CallId),
    /// Try again to keep what the call has left locked; and its time is over.
    Retain(CallId),
    Retained(CallId),
    /// Ask for the lease again.
    Grant(LeaseRef),
    Renew(LeaseRef),
    /// The lease's local stop time.
    Stop(LeaseRef),
    /// Send the seal again.
    Seal(LeaseRef),
    /// Refuse the calls that have waited too long for etcd to be reached.
    Trouble(LeaseRef),
    /// Look at the name again.
    Look(Key),
    /// The name has been held for a while: watch its key (rule P18).
    Guard(Key),
    /// The name has not been wanted for a while: stop watching it.
    Rest(Key),
    /// The call has waited for a while: is it in a circle? Or, of a holder, write its keys again.
    Deadlock(CallId),
    /// Send what was held back.
    Flush,
    /// The grace of the shutdown is over; or all waiting is.
    Shutdown,
}

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

    fn fire(&mut self, now: Moment) {
        while self.timers.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, timer)) = self.timers.pop_first() else {
                return;
            };
            match timer {
                Timer::Wait(call) => self.wait_over(now, call),
                Timer::Confirm(call) => self.confirm_over(call),
                Timer::Linger(call) => self.linger_over(now, call),
                Timer::Retain(call) => self.retain_on(now, call),
                Timer::Retained(call) => self.retention_over(now, call),
                Timer::Grant(lease) => self.ask(now, lease),
                Timer::Renew(lease) => self.renew_if_due(now, lease),
                Timer::Stop(lease) => self.stop(now, lease),
                Timer::Seal(lease) => self.send_seal(now, lease),
                Timer::Trouble(lease) => self.trouble(now, lease),
                Timer::Look(name) => self.look_if_due(now, &name),
                Timer::Guard(name) => self.guard(now, &name),
                Timer::Rest(name) => self.rest(now, &name),
                Timer::Deadlock(call) => self.step(now, call),
                Timer::Flush => {}
                Timer::Shutdown => self.shutdown_due(now),
            }
        }
    }

    fn answer(&mut self, now: Moment, request: RequestId, result: Result<Response, Failure>) {
        let Some(UnderWay {
            exchange,
            sent,
            floor,
        }) = self.under_way.remove(&request)
        else {
            return;
        };
        if let Ok(Response::Txn(answer)) = &result
            && request > self.old
        {
            self.highest = self.highest.max(answer.revision);
        }
        // What was sent before a wipe was found out does not find it out again.
        let sealed_above = if request > self.old { floor } else { 0 };
        match exchange {
            Exchange::Grant(lease) => self.granted(now, lease, sent, result),
            Exchange::Renewal(lease) => self.renewed(now, lease, sent, result),
            Exchange::Revoke => {}
            Exchange::Seal(lease) => self.sealed(now, lease, sealed_above, transaction(result)),
            Exchange::Put { lease, bids } => {
                self.put(now, sent, lease, bids, transaction(result));
            }
            Exchange::Try { lease, bid, call } => {
                self.tried(now, sent, lease, bid, call, transaction(result));
            }
            Exchange::Delete(deletions) => self.deleted(now, deletions, transaction(result)),
            Exchange::Look(looks) => self.looked(now, looks, sent, floor, transaction(result)),
            Exchange::Reserve(call) => self.reserved(now, call, result),
            Exchange::Retain(call) => self.retained(now, call, transaction(result)),
            Exchange::Repair { name, created } => {
                self.repaired(now, &name, created, transaction(result));
            }
            Exchange::Autopsy(lease) => self.autopsied(now, lease, floor, transaction(result)),
            Exchange::Publish { holder, waits } => {
                self.published(now, holder, waits, transaction(result));
            }
            Exchange::Search(call) => self.searched(now, call, transaction(result)),
            Exchange::Abort(abort) => self.aborted(now, *abort, transaction(result)),
        }
    }

    /// Sends what is ready, as much in one bundle as fits, if the window is free (rule P7).
    fn flush(&mut self, now: Moment) {
        while self.flush_puts(now) {}
        self.flush_deletions(now);
        self.flush_looks(now);
    }

    fn send(&mut self, now: Moment, request: Request, exchange: Exchange) -> RequestId {
        let id = self.new_id();
        self.under_way.insert(
            id,
            UnderWay {
                exchange,
                sent: now,
                floor: self.highest,
            },
        );
        self.outputs.push_back(Output::Send { id, request });
        id
    }

    fn at(&mut self, when: Moment, timer: Timer) {
        self.timers.insert((when, timer));
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

/// The transaction in an answer.
fn transaction(result: Result<Response, Failure>) -> Result<request::TxnAnswer, Failure> {
    match result {
        Ok(Response::Txn(answer)) => Ok(answer),
        Ok(other) => Err(Failure::Unknown(Arc::from(Box::from(format!(
            "not a transaction's answer: {other:?}"
        ))))),
        Err(failure) => Err(failure),
    }
}

impl Refused {
    /// Which of the call's names it is about, counted from 0; the first stands for all.
    pub(crate) fn name(&self) -> usize {
        match self {
            Self::Held { name, .. }
            | Self::Timeout { name, .. }
            | Self::Mismatch { name, .. }
            | Self::Deadlock { name, .. } => *name,
            _ => 0,
        }
    }

    /// What a call is told about a failure.
    fn by(failure: Failure) -> Self {
        match failure {
            Failure::Refused {
                kind: request::Refusal::PermissionDenied,
                cause,
            } => Self::PermissionDenied(cause),
            Failure::Refused { cause, .. }
            | Failure::Unavailable(cause)
            | Failure::Unknown(cause) => Self::Backend(cause),
        }
    }
}
