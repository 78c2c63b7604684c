//! Driver: turns commands and events into inputs of the core, and the core's outputs into exchanges, watches and replies.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::Duration;

use etcd_locked_core::{
    Acquire, CallId, Compare, Core, Event, Failure, Grant, Input, Key, Kv, Op, Output, Refused,
    Release, Request, RequestId, Response, Settings, Txn, WatchId, lease_of, session_root,
};
use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use tokio::task::unconstrained;

use super::effects::{Effect, Taker};
use super::kept::Kept;
use super::losses;
use super::ownership::{Home, OwnedLock, OwnedLocks, Ownership, Reply};
use super::runner::{Runner, contain, submit};
use crate::clock::{Alarm, Clock, Moment};
use crate::metrics::{self, Asked};
use crate::transport::client::Client;
use crate::transport::watch::{self, Report};
use crate::values::{Config, Drained, KEY, LossCause, Name, Token, held_after, shown};

/// Maximum number of keys under one session, if etcd checks a user's permission for each of them at every put (rule P27).
const KEYS_PER_SESSION: usize = 8;
/// Maximum number of predecessors for which a waiter watches all keys of a name; behind more, it watches only the last predecessor (rule
/// P15). Watching only the last one cost 16 processes 6 to 8 % of their calls a second.
const NEAR: usize = 16;
/// Maximum number of kept locks to release in one step.
const AT_ONCE: usize = 64;

/// Input of the engine.
pub(super) enum Message {
    /// From a handle to the engine.
    Command(Command),
    /// An exchange has ended.
    Answer { request: RequestId, result: Result<Response, Failure>, asked: Asked },
    /// A watch reports an event.
    Watch(WatchId, Option<Event>),
    /// The keys of these calls are under a separate lease.
    Moved(Vec<CallId>),
    /// An operator has received the answer that this call stops.
    Kick(CallId),
    /// Time has passed.
    Time,
}

/// Command from a handle to the engine.
pub(super) enum Command {
    /// A call requests these names.
    Acquire { acquire: Acquire, names: Arc<[Name]>, reply: Taker },
    /// The caller is gone.
    Cancel(CallId),
    /// The body has been dropped.
    Release { call: CallId, how: Release, fenced: bool, reply: Option<Reply> },
    /// The locks of a call must not be released before `until`.
    Keep { call: CallId, until: Moment },
    /// Opens a session.
    Warm { call: CallId, ttl_secs: i64, reply: Reply },
    /// Refuses new calls, and ends the present ones within the grace. No reply: the last handle is gone, or `init` has failed.
    Shutdown { grace: Duration, reply: Option<oneshot::Sender<Drained>> },
    /// The test kit reads the driver, or makes it step.
    #[cfg(feature = "testing")]
    Inspect(Box<dyn FnOnce(&mut Driver) + Send>),
}

/// The core, and everything that its inputs and outputs refer to.
pub(super) struct Driver {
    pub(super) core: Core,
    pub(super) clock: Arc<dyn Clock>,
    /// Time of the last step.
    now: Moment,
    /// The driver itself, among others: for tasks that submit responses, and for ownerships that submit releases.
    home: Arc<Home>,
    /// Wakes the engine's thread when a timer of the core is due.
    alarm: Arc<Alarm>,
    /// Runtime on which exchanges are awaited.
    runtime: Handle,
    client: Arc<Client>,
    /// Channel to the task of the watches, which ends when this is dropped. Sending fails only once the runtime is gone.
    watches: UnboundedSender<watch::Command>,
    /// The watch for kicks, while a session exists; the prefix of its keys; and the id of the last such watch.
    kicks: Option<WatchId>,
    kick_root: String,
    last_kicks: u64,
    /// Performed by the runner once it has unlocked the driver.
    pub(super) effects: Vec<Effect>,
    pub(super) waiting: BTreeMap<CallId, (Arc<[Name]>, Taker)>,
    pub(super) held: BTreeMap<CallId, Held>,
    pub(super) kept: Kept,
    /// Losses in this step.
    losses: Vec<(Arc<OwnedLocks>, LossCause)>,
    /// Replies to releases of locks by this name, or to requests for a session.
    replies: BTreeMap<CallId, (Option<Name>, Reply)>,
    stopping: Vec<oneshot::Sender<Drained>>,
    /// Result of the shutdown so far; `None` before it.
    drained: Option<Drained>,
    /// True if calls wait, as last reported to the transport.
    waits: bool,
    /// True once it handles nothing any more.
    pub(super) finished: bool,
}

/// Locks of a call.
pub(super) struct Held {
    pub(super) locks: Arc<OwnedLocks>,
    /// True once their loss is reported.
    reported: bool,
    /// Earliest time of their release.
    keep: Option<Moment>,
}

impl Driver {
    /// Creates a driver. `on` is the runtime for exchanges, and the alarm for the core's timers.
    pub(super) fn new(
        config: &Config,
        clock: Arc<dyn Clock>,
        client: Arc<Client>,
        on: (Handle, Arc<Alarm>),
        runner: Weak<Runner>,
    ) -> Self {
        let process = std::process::id();
        let (engine, denied) = (runner.clone(), Arc::clone(&client.denied));
        let home = Arc::new(Home { engine, process, clock: clock.clone(), denied });
        let settings = Settings {
            prefix: config.prefix.as_str().into(),
            connect_timeout: config.connect_timeout,
            silence: client.silence(),
            describe: held_after,
            keys_per_session: config.source.has_limits().then_some(KEYS_PER_SESSION),
            near: NEAR,
            max_waiters: config.max_waiters,
            defers: !client.answers_at_once,
            seed: RandomState::new().hash_one(process),
        };
        let (runtime, alarm) = on;
        let driver = runner.clone();
        let wake = move || submit(&driver, Message::Time);
        runtime.spawn(Client::mind(Arc::downgrade(&client), wake));
        let driver = runner.clone();
        let report: Report = Arc::new(move |watch, event| {
            submit(&driver, Message::Watch(watch, event));
        });
        Self {
            core: Core::new(settings),
            watches: watch::start(client.clone(), clock.clone(), &runtime, report),
            kicks: None,
            kick_root: session_root(&config.prefix) + "kick/",
            last_kicks: u64::MAX,
            now: clock.now(),
            home,
            clock,
            alarm,
            runtime,
            client,
            effects: Vec::new(),
            waiting: BTreeMap::new(),
            held: BTreeMap::new(),
            kept: Kept::default(),
            losses: Vec::new(),
            replies: BTreeMap::new(),
            stopping: Vec::new(),
            waits: false,
            drained: None,
            finished: false,
        }
    }

    /// Makes one step by the core's contract: one input, then all its outputs.
    pub(super) fn step(&mut self, input: Input) {
        self.now = self.clock.now();
        self.core.handle(self.now, input);
        while let Some(output) = self.core.poll() {
            self.follow(output);
        }
        self.report_losses();
    }

    pub(super) fn handle(&mut self, message: Message) {
        // A caller's thread does no work for others.
        while !matches!(message, Message::Command(_))
            && let Some(news) = self.client.reach.news()
        {
            if matches!(news, Input::Wiped) {
                self.later(log_history);
                self.ignore_kicks(); // watched anew, like the core's watches: the new history begins at an earlier revision
            }
            self.step(news);
        }
        match message {
            Message::Command(command) => self.carry_out(command),
            Message::Answer { request, result, asked } => {
                let client = &self.client;
                let shortest = || client.renewals.live().iter().map(|it| it.1).min();
                let etcd = || (client.reach.is_reached(), shortest());
                let measured = asked.answered(&result, || self.clock.now(), etcd);
                self.effects.extend(measured.map(Effect::Run));
                self.step(Input::Answer { request, result });
            }
            Message::Watch(watch, event) if self.kicks == Some(watch) => match event {
                Some(Event::Put(kick)) => self.kicked(kick),
                Some(Event::Delete { .. }) => {}
                None => self.kicks = None, // compacted: watched anew
            },
            Message::Watch(watch, event) => self.step(Input::Watch { watch, event }),
            Message::Moved(calls) => {
                self.kept.moved(&calls);
                for call in calls {
                    self.step(Input::Release { call, how: Release::Moved, fenced: true });
                }
            }
            Message::Kick(call) => self.step(Input::Kick(call)),
            Message::Time => {
                self.release_kept();
                self.step(Input::Tick);
            }
        }
        self.move_kept();
        self.watch_for_kicks();
        let waits = self.core.has_waiters();
        if mem::replace(&mut self.waits, waits) != waits {
            self.client.reach.change(|state, now| state.etcd.wait(now, waits));
        }
        if let Some(due) = self.core.next_timeout().into_iter().chain(self.kept.next()).min() {
            self.alarm.set(self.now, due);
        }
    }

    fn carry_out(&mut self, command: Command) {
        match command {
            Command::Acquire { acquire, names, reply } => {
                self.waiting.insert(acquire.call, (names, reply));
                self.step(Input::Acquire(acquire));
            }
            Command::Cancel(call) => {
                if let Some((_, reply)) = self.waiting.remove(&call) {
                    self.later(move || drop(reply)); // may wake a task even so
                }
                self.step(Input::Cancel(call));
            }
            Command::Release { call, how, fenced, reply } => {
                let held = self.held.remove(&call);
                let name = |held: &Held| held.locks.first.name.clone();
                self.replies.extend(reply.map(|it| (call, (held.as_ref().map(name), it))));
                let Some(held) = held else {
                    self.done(call, Err(Refused::ShuttingDown));
                    return self.step(Input::Release { call, how, fenced });
                };
                let was_lost = held.locks.was_lost();
                // The caller saw the deadline pass before the core did: the process, or the engine's thread, was paused.
                if was_lost && !held.reported {
                    self.losses.push((Arc::clone(&held.locks), LossCause::Expired));
                }
                match &mut self.drained {
                    Some(drained) if was_lost => drained.cut_off += 1,
                    Some(drained) => drained.ended += 1,
                    None => {}
                }
                // Lost locks are not kept.
                let (now, lost) = (self.clock.now(), held.locks.lost());
                if let Some(until) = held.keep.filter(|until| *until > now)
                    && matches!(lost, None | Some(LossCause::Released | LossCause::Shutdown))
                {
                    let reply = self.replies.remove(&call);
                    self.effects.extend(reply.map(|(_, it)| Effect::Done(it, Ok(()), None)));
                    return self.kept.add(call, until, held.locks);
                }
                self.step(Input::Release { call, how, fenced });
            }
            Command::Keep { call, until } => {
                if let Some(held) = self.held.get_mut(&call) {
                    held.keep = held.keep.max(Some(until));
                }
            }
            Command::Warm { call, ttl_secs, reply } => {
                self.replies.insert(call, (None, reply));
                self.step(Input::Warm { call, ttl_secs });
            }
            Command::Shutdown { grace, reply } => {
                reply.is_some().then(|| self.drained.get_or_insert_default());
                self.stopping.extend(reply);
                self.kept.shut_down();
                self.step(Input::Shutdown { until: self.clock.now() + grace });
            }
            #[cfg(feature = "testing")]
            Command::Inspect(inspection) => inspection(self),
        }
    }

    fn follow(&mut self, output: Output) {
        match output {
            Output::Send { id, request } => self.exchange(id, request),
            Output::Watch { id, prefix, from, puts } => {
                let from = Some(from);
                let _ = self.watches.send(watch::Command::Add { id, prefix, from, puts });
            }
            Output::Unwatch(id) => drop(self.watches.send(watch::Command::Remove(id))),
            Output::Granted(grant) => self.grant(grant),
            Output::Refused { call, why } => {
                if let Some((names, reply)) = self.waiting.remove(&call) {
                    if let Refused::Backend(cause) = &why
                        && self.client.reach.refused()
                    {
                        let cause = cause.clone();
                        self.later(move || tracing::warn!(parent: None, code = "etcd.refused", %cause, "etcd responds but refuses requests, so calls are refused: see `cause`"));
                    }
                    let name = names.get(why.name()).cloned(); // the refused one, or the first
                    self.effects.push(Effect::Refused(reply, why, name));
                } else {
                    self.done(call, Err(why));
                }
            }
            Output::Lost { call, cause } => {
                let cause = LossCause::of(cause);
                if let Some(held) = self.held.get_mut(&call) {
                    let was_reported = mem::replace(&mut held.reported, true);
                    let locks = Arc::clone(&held.locks);
                    if locks.note_loss(cause) {
                        self.effects.push(Effect::Wake(Arc::clone(&locks)));
                    }
                    // Locks that the caller is just releasing are not lost.
                    if !was_reported && locks.lost() != Some(LossCause::Released) {
                        self.losses.push((locks, cause));
                    }
                } else if cause != LossCause::Shutdown && self.kept.lose(call) {
                    self.release_unclaimed(call);
                }
            }
            Output::Released { call, result } => self.done(call, result),
            Output::Ready(call) => self.done(call, Ok(())),
            Output::Crowded(name) => self.later(move || {
                let lock = shown(&name, KEY);
                tracing::warn!(parent: None, code = "name.nested", %lock, "a lock name has very many others below it, so its locks pass late: add a last part to it, such as `/all`");
            }),
            Output::Bounded => self.later(|| tracing::warn!(parent: None, code = "deadlock.bound", "a deadlock search was too large and left keys out: bound waits, and take several names in one call")),
            Output::Finished => {
                self.finished = true;
                self.report_losses();
                self.close();
            }
        }
    }

    /// Runs this after the step, because it runs user code, such as for log lines.
    pub(super) fn later(&mut self, run: impl FnOnce() + Send + 'static) {
        self.effects.push(Effect::Run(Box::new(run)));
    }

    /// Logs the losses of this step, in one line.
    fn report_losses(&mut self) {
        if !self.losses.is_empty() {
            let losses = mem::take(&mut self.losses);
            self.later(move || losses::report(losses));
        }
    }

    /// Replies with the result of a release, or of opening a session.
    fn done(&mut self, call: CallId, result: Result<(), Refused>) {
        let reply = self.replies.remove(&call);
        self.effects.extend(reply.map(|(name, reply)| Effect::Done(reply, result, name)));
    }

    /// Ends everything that calls still hold or wait for. The engine reports no more losses, and bodies without their locks end now.
    fn close(&mut self) {
        let asked = self.drained.is_some();
        let mut drained = self.drained.take().unwrap_or_default();
        drained.leases = self.client.renewals.left();
        for Held { locks, .. } in mem::take(&mut self.held).into_values() {
            drained.left.extend(locks.locks().map(|lock| lock.name.clone()));
            if locks.note_loss(LossCause::Shutdown) {
                self.effects.push(Effect::Wake(locks));
            }
        }
        drained.left.extend(mem::take(&mut self.kept).names().cloned());
        // Their dropped replies show them that the engine has ended.
        let (waiting, unconfirmed) = (mem::take(&mut self.waiting), mem::take(&mut self.replies));
        self.later(move || drop((waiting, unconfirmed)));
        if asked {
            let drained = drained.clone();
            self.later(move || log_end(&drained));
        }
        for reply in mem::take(&mut self.stopping) {
            let drained = drained.clone();
            self.later(move || drop(reply.send(drained))); // a receiver that is gone needs no reply
        }
    }

    fn exchange(&mut self, id: RequestId, request: Request) {
        let client = self.client.clone();
        let asked = Asked::now(&request, || self.clock.now());
        let (runtime, runner) = (self.runtime.clone(), self.home.engine.clone());
        // Boxed, because it may move to a task after it was polled.
        let mut exchange = Box::pin(async move {
            let exchange = AssertUnwindSafe(async move { client.exchange(request).await });
            // After a panic in the client's code, the core must still receive a response, or it waits forever.
            let panicked = |_| {
                let cause = "the exchange with etcd panicked";
                Err(Failure::Unknown(Arc::from(Box::from(cause))))
            };
            let result = exchange.catch_unwind().await.unwrap_or_else(panicked);
            submit(&runner, Message::Answer { request: id, result, asked });
        });
        if !self.client.answers_at_once {
            runtime.spawn(exchange);
            return;
        }
        // An etcd in this process responds within one poll, which may write log lines.
        self.later(move || {
            let _here = runtime.enter(); // its timers are not the caller's
            if unconstrained(&mut exchange).now_or_never().is_none() {
                runtime.spawn(exchange); // polls it again
            }
        });
    }

    /// Sends the ownership through the reply. If the caller is gone, dropping it releases the locks (rule P26).
    fn grant(&mut self, grant: Grant) {
        let Grant { call, mode, owned, deadline } = grant;
        let Some((names, reply)) = self.waiting.remove(&call) else {
            return self.release_unclaimed(call);
        };
        let mut locks = names.iter().zip(owned).map(|(name, owned)| OwnedLock {
            name: name.clone(),
            key: owned.key,
            created: owned.created,
            token: Token::new(owned.revision.get(), owned.handover),
            mode,
        });
        let Some(first) = locks.next() else {
            self.later(move || drop(reply));
            return self.release_unclaimed(call); // a call has a name
        };
        let all = (first, locks.collect());
        let locks = OwnedLocks::new(call, all, self.now, deadline, Arc::clone(&self.home));
        let locks = Arc::new(locks);
        self.held.insert(call, Held { locks: locks.clone(), reported: false, keep: None });
        self.effects.push(Effect::Granted(reply, Ownership::new(locks)));
    }

    /// Releases kept locks whose time is over, a few at a time.
    fn release_kept(&mut self) {
        let now = self.clock.now();
        for _ in 0..AT_ONCE {
            let Some(call) = self.kept.take_due(now) else { return };
            // Not handed over: calls of other processes may have waited for the whole time.
            self.step(Input::Release { call, how: Release::Unconfirmed, fenced: true });
        }
    }

    /// Starts the moves of kept locks that a shutdown needs.
    fn move_kept(&mut self) {
        while let Some(next) = self.kept.next_move(self.clock.now()) {
            let (client, clock, runner) =
                (self.client.clone(), self.clock.clone(), self.home.engine.clone());
            self.runtime.spawn(async move {
                let calls = next.complete(&client, &*clock).await;
                submit(&runner, Message::Moved(calls));
            });
        }
    }

    /// Watches for kicks while a session exists, under whose lease calls may hold locks.
    fn watch_for_kicks(&mut self) {
        match self.kicks {
            None if self.core.has_sessions() => {
                self.last_kicks -= 1; // the core's ids increase
                let (id, prefix) = (WatchId(self.last_kicks), self.kick_root.as_str().into());
                self.kicks = Some(id);
                let watch = watch::Command::Add { id, prefix, from: None, puts: true };
                let _ = self.watches.send(watch);
            }
            Some(_) if !self.core.has_sessions() => self.ignore_kicks(),
            _ => {}
        }
    }

    fn ignore_kicks(&mut self) {
        let id = self.kicks.take();
        id.into_iter().for_each(|id| drop(self.watches.send(watch::Command::Remove(id))));
    }

    /// Responds to a kick, if the key belongs to this process, with whether that call has it (rule P40). The call loses the key only once
    /// the response is known to be written. Otherwise the operator could read that nothing was taken.
    fn kicked(&mut self, kick: Kv) {
        let asked = serde_json::from_slice::<(String, i64, u64)>(&kick.value);
        let (Ok((key, created, call)), Ok(at)) = (asked, String::from_utf8(kick.key)) else {
            return; // for example, a response
        };
        let live = self.client.renewals.live();
        if !lease_of(key.as_bytes()).is_some_and(|lease| live.iter().any(|it| it.0 == lease)) {
            return;
        }
        let call = CallId(call);
        let held = self.held.get(&call).map(|held| &held.locks).or_else(|| self.kept.locks(call));
        let has = |it: &OwnedLock| *it.key == *key && it.created.get() == created;
        let stops = held.is_some_and(|locks| locks.locks().any(has));
        let answer: &[u8] = if stops { b"stopping" } else { b"another call" };
        let at: Key = at.into();
        let put = Op::Put { key: at.clone(), value: answer.into(), lease: kick.lease.unwrap_or(0) };
        let when = vec![Compare::Modified(at, kick.mod_revision)];
        let answer = Request::Txn(Txn { when, then: vec![put], ..Txn::default() });
        let (client, engine) = (self.client.clone(), self.home.engine.clone());
        self.runtime.spawn(async move {
            let answered = client.exchange(answer).await.and_then(Response::txn);
            if stops && answered.is_ok_and(|it| it.succeeded) {
                submit(&engine, Message::Kick(call));
            }
        });
    }

    /// Releases locks whose caller is gone, so there is no ownership to do it.
    fn release_unclaimed(&mut self, call: CallId) {
        let release = Input::Release { call, how: Release::Unconfirmed, fenced: false };
        self.core.handle(self.clock.now(), release);
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.alarm.ring(); // so that the thread notices that the driver has ended
        // Nothing is left here after `Output::Finished`, but a panic ends the driver without it.
        self.close();
        for effect in mem::take(&mut self.effects) {
            contain(|| effect.perform());
        }
    }
}

fn log_end(drained: &Drained) {
    match drained.is_complete() {
        true => tracing::info!(parent: None, %drained, "the shutdown is complete"),
        false => {
            tracing::warn!(parent: None, code = "shutdown.incomplete", %drained, "the shutdown has left locks or leases in etcd until their TTL is over")
        }
    }
}

fn log_history() {
    tracing::error!(
        parent: None,
        code = "etcd.history_lost",
        "etcd has lost its history: it was wiped, or restored from a snapshot. Every lock held until now is lost. Tokens may \
         go backwards: a database that remembers the last token refuses new ones until they have passed it. To keep tokens \
         increasing, restore with the services stopped, by `etcdutl snapshot restore --bump-revision .. --mark-compacted`"
    );
    metrics::history_lost();
}
