//! Calls that a worker makes: annotated functions and `lock()`, of every kind.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{GetOptions, SortOrder, SortTarget};
use etcd_locked::{Acquire, Group, LockError, LockGuard, current, etcd_locked, lock, lock_names};
use fastrand::Rng;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::body::{Body, Hold, Polls};
use super::connection::WitnessConnection;
use super::etcdctl;
use super::mix::Kind;
use super::service::Owner;
use crate::history::{Asked, Mode, Outcome, Said};
use crate::login;
use crate::options::{Who, word};

/// Number of hot names; every worker always wants each of them.
pub(crate) const HOT: u64 = 6;
const COLD: u64 = 200;
const FEW: u64 = 3;
/// Number of names that are locked one under another.
const NESTED: u64 = 8;
/// Number of names with long holders.
const LONG: u64 = 12;
/// Number of names with one task in each process. For these, places in etcd's queue are compared across processes.
pub(super) const TURNS: u64 = 2;
const PERMITS: u16 = 3;
/// Wait of most calls, in milliseconds.
const WAIT: u64 = 10_000;
const BRIEF: u64 = 2_000;
const USUAL: u64 = 10_000;

pub(super) struct Caller {
    pub(super) witness: WitnessConnection,
    pub(super) random: Rng,
    pub(super) who: Who,
    /// Task's client of etcd's lock service, if that makes the calls.
    pub(super) service: Option<Box<Owner>>,
    /// True when the worker must end.
    pub(super) draining: watch::Receiver<bool>,
}

lock_names! {
    /// Name locked under another of its kind.
    Nest = "nest/<n: u64>";
}

#[etcd_locked("hot/<n>", ttl = "2s", wait = "10s")]
async fn brief(n: u64, body: Body) -> Result<(), LockError> {
    body.run().await
}

#[etcd_locked("hot/<n>", ttl = "10s", wait = "10s")]
async fn usual(n: u64, body: Body) -> Result<(), LockError> {
    body.run().await
}

#[etcd_locked("book/<n>", ttl = "2s", wait = "10s", shared)]
async fn reader(n: u64, body: Body) -> Result<(), LockError> {
    body.run().await
}

#[etcd_locked("book/<n>", ttl = "2s", wait = "10s")]
async fn writer(n: u64, body: Body) -> Result<(), LockError> {
    body.run().await
}

#[etcd_locked("seat/<n>", ttl = "2s", wait = "10s", permits = 3)]
async fn permit(n: u64, body: Body) -> Result<(), LockError> {
    body.run().await
}

#[etcd_locked("pair/<a>", "pair/<b>", "hot/<b>", ttl = "10s", wait = "10s")]
async fn group(a: u64, b: u64, body: Body) -> Result<(), LockError> {
    body.run().await
}

#[etcd_locked(name, ttl = "10s", wait = "none")]
async fn once(name: String, body: Body) -> Result<(), LockError> {
    body.run().await
}

#[etcd_locked("hot/<n>", ttl = "10s", wait = "10s", detach)]
async fn detached(n: u64, body: Body) -> Result<(), LockError> {
    body.run().await
}

#[etcd_locked("rest/<n>", ttl = "2s", wait = "10s", min_hold = "500ms")]
async fn retained(n: u64, body: Body) -> Result<(), LockError> {
    body.run().await
}

#[etcd_locked("hot/<n>", ttl = "10s", wait = "10s")]
async fn panicking(n: u64, body: Body) -> Result<(), LockError> {
    let _ = body.run().await;
    // This prints no message, because the panic is on purpose.
    std::panic::resume_unwind(Box::new("the body panics"))
}

#[etcd_locked(name, ttl = "2s", wait = "10s", on_lost = "continue")]
async fn careless(name: String, body: Body) -> Result<(), LockError> {
    body.run().await
}

/// Call that was made and has not returned; its drop means that its caller dropped it.
struct Pending {
    witness: WitnessConnection,
    call: u64,
    result: Outcome,
}

impl Pending {
    async fn answered(mut self, call: impl Future<Output = Result<(), LockError>>) -> Outcome {
        self.result = outcome(call.await);
        self.result.clone()
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.witness.say(Said::Returned { call: self.call, result: self.result.clone() });
    }
}

/// Makes the request for this name alone, with the usual wait.
fn alone(kind: Kind, name: String, ttl: u64) -> Asked {
    let (kind, names) = (word(kind), vec![name]);
    Asked { kind, names, wait: Some(WAIT), ttl, ..Asked::default() }
}

impl Caller {
    /// Makes one call for a hot name, as every worker always does.
    pub(super) async fn hot(&mut self, n: u64) {
        let lasts = self.between(2, 30);
        let asked = alone(Kind::Hot, name("hot", n), ttl(n));
        match ttl(n) {
            _ if self.who != Who::Ours => self.by_hand(asked, lasts).await,
            BRIEF => self.make(asked, lasts, |body| brief(n, body)).await,
            _ => self.make(asked, lasts, |body| usual(n, body)).await,
        }
    }

    /// Makes one call for a name that one task of each process wants, and waits until its key is gone.
    pub(super) async fn turn(&mut self, n: u64) {
        let lasts = self.between(1_000, 1_500);
        self.by_hand(alone(Kind::Turn, name("turn", n), USUAL), lasts).await;
        sleep(self.between(300, 500)).await;
    }

    pub(super) async fn call(&mut self, kind: Kind) {
        let lasts = self.between(2, 60);
        let (n, few) = (self.random.u64(0..HOT), self.random.u64(0..FEW));
        let hot = |ttl| alone(kind, name("hot", n), ttl);
        match kind {
            Kind::Hot => self.hot(n).await,
            Kind::Turn => self.turn(n % TURNS).await,
            Kind::Exclusive => self.by_hand(hot(ttl(n)), lasts).await,
            Kind::Cold => {
                let n = self.random.u64(0..COLD);
                self.by_hand(alone(kind, name("cold", n), ttl(n)), lasts).await;
            }
            Kind::Long if self.who.is_mistaken() => {
                let lasts = self.between(1_000, 4_000);
                self.by_hand(alone(kind, name("long", few), ttl(few)), lasts).await;
            }
            Kind::Long => {
                let lasts = self.between(3_000, 12_000);
                let n = self.random.u64(0..LONG);
                let asked = Asked { wait: None, ..alone(kind, name("long", n), ttl(n)) };
                self.by_hand(asked, lasts).await;
            }
            Kind::Shared => {
                let asked = alone(kind, name("book", few), BRIEF);
                let asked = Asked { mode: Mode::Shared, ..asked };
                self.make(asked, lasts, |body| reader(few, body)).await;
            }
            Kind::Writer => {
                let asked = alone(kind, name("book", few), BRIEF);
                self.make(asked, lasts, |body| writer(few, body)).await;
            }
            Kind::Permit => {
                let asked = alone(kind, name("seat", few), BRIEF);
                let asked = Asked { mode: Mode::Permits(PERMITS), ..asked };
                self.make(asked, lasts, |body| permit(few, body)).await;
            }
            Kind::Group => {
                let mut names = vec![name("pair", few), name("pair", n), name("hot", n)];
                names.dedup(); // a call locks equal names once
                let asked = Asked { names, ..hot(USUAL) };
                self.make(asked, lasts, |body| group(few, n, body)).await;
            }
            Kind::Try => {
                // Cold names are mostly free.
                let name = match self.random.bool() {
                    true => name("hot", n),
                    false => name("cold", self.random.u64(0..COLD)),
                };
                let asked = Asked { wait: Some(0), ..alone(kind, name.clone(), USUAL) };
                self.make(asked, lasts, |body| once(name, body)).await;
            }
            Kind::Bounded => {
                let wait = Some(self.random.u64(20..=400));
                self.by_hand(Asked { wait, ..hot(ttl(n)) }, lasts).await;
            }
            Kind::Dropped => {
                let patience = self.between(0, 150);
                let (pending, body) = self.ask(hot(USUAL), lasts);
                let _ = timeout(patience, pending.answered(usual(n, body))).await;
            }
            Kind::Detached => {
                let patience = self.between(0, 300);
                let (pending, body) = self.ask(hot(USUAL), lasts);
                let _ = timeout(patience, pending.answered(detached(n, body))).await;
            }
            Kind::Nested => self.nested(lasts).await,
            Kind::Panicking => {
                let (pending, body) = self.ask(hot(USUAL), lasts);
                let call = tokio::spawn(pending.answered(panicking(n, body)));
                // The panic has ended its caller, which has reported that.
                let _ = call.await;
            }
            Kind::Blocking => {
                // Other calls give up before such a body ends, because their tasks have more to do.
                let asked = Asked { wait: Some(1_000), ..alone(kind, name("block", few), BRIEF) };
                let acquire = acquire(&asked);
                let (pending, body) = self.ask(asked, lasts);
                blocking(pending.answered(blocked(acquire, body))).await;
            }
            Kind::Retained => {
                let asked = Asked { min_hold: 500, ..alone(kind, name("rest", few), BRIEF) };
                self.make(asked, lasts, |body| retained(few, body)).await;
            }
        }
    }

    async fn make<F: Future<Output = Result<(), LockError>>>(
        &self,
        asked: Asked,
        lasts: Duration,
        call: impl FnOnce(Body) -> F,
    ) {
        let (pending, body) = self.ask(asked, lasts);
        pending.answered(call(body)).await;
    }

    /// Locks, works and releases with separate calls: with the peer, or with this worker's mistake.
    async fn by_hand(&mut self, asked: Asked, lasts: Duration) {
        let acquire = acquire(&asked);
        let names = asked.names.clone();
        let (mut pending, mut body) = self.ask(asked.clone(), lasts);
        match self.who {
            Who::LockService => {
                if let Some(service) = &mut self.service {
                    pending.result = service.call(&asked, body).await;
                }
            }
            Who::Etcdctl => {
                let called = etcdctl::call(&asked, body).await;
                pending.result = called.unwrap_or_else(|error| Outcome::Wrong(error.to_string()));
            }
            Who::Unlocked if self.random.u8(0..100) == 0 => {
                body.writes = false;
                let tokens = names.into_iter().map(|name| (name, 0)).collect();
                body.run_under(Hold { tokens, is_held: Box::new(|| true) }).await;
                pending.result = Outcome::Done;
            }
            Who::LyingRenewal => {
                body.lies = true;
                pending.answered(careless(names.concat(), body)).await;
            }
            Who::NoGuard => {
                let call = async {
                    let guard = acquire.await?;
                    let unguarded =
                        async { tokio::spawn(body.run_under(Hold::of(current()))).await };
                    let _ = guard.hold(unguarded).await?;
                    guard.release().await
                };
                pending.answered(call).await;
            }
            Who::NoGate => {
                let call = async {
                    let guard: LockGuard = acquire.await?;
                    let locks = guard.hold(async { current() }).await?;
                    tokio::select! {
                        biased;
                        () = body.run_under(Hold::of(locks)) => {}
                        // Its task notices only here that the lock is lost.
                        _ = guard.lost() => guard.hold(async {}).await?,
                    }
                    guard.release().await
                };
                pending.answered(call).await;
            }
            who => {
                let called = pending.answered(guarded(acquire, body)).await;
                let without = matches!(called, Outcome::Lost(_) | Outcome::Busy);
                if without && who == Who::ReleaseByName {
                    // The result does not matter: the worker believes that the key was its own.
                    let _ = release_by_name(&names.concat()).await;
                }
            }
        }
    }

    /// Locks one name under another, in any order, so calls of two tasks may deadlock.
    async fn nested(&mut self, lasts: Duration) {
        let n = self.random.u64(0..NESTED);
        let other = (n + self.random.u64(1..NESTED)) % NESTED;
        let acquire = |n| {
            lock(Nest { n }).ttl(Duration::from_millis(USUAL)).wait(Duration::from_millis(WAIT))
        };
        let asked = |n| alone(Kind::Nested, name("nest", n), USUAL);
        let (pending, body) = self.ask(asked(n), lasts);
        let under = Some(pending.call);
        let call = async {
            let guard = acquire(n).await?;
            let inner = async {
                sleep(lasts / 4).await;
                let asked = Asked { under, ..asked(other) };
                self.make(asked, lasts / 4, |body| guarded(acquire(other), body)).await;
            };
            let work = async { body.around(Hold::of(current()), inner).await };
            guard.hold(work).await?;
            guard.release().await
        };
        pending.answered(call).await;
    }

    /// Reports that a call is made, and makes its body.
    fn ask(&self, asked: Asked, lasts: Duration) -> (Pending, Body) {
        let call = self.witness.call();
        let body = Body {
            witness: self.witness.clone(),
            call,
            lasts,
            writes: asked.mode == Mode::Exclusive,
            lies: false,
            draining: self.draining.clone(),
            polls: Arc::new(Polls::default()),
        };
        self.witness.say(Said::Asked { call, asked });
        let pending = Pending { witness: self.witness.clone(), call, result: Outcome::Dropped };
        (pending, body)
    }

    /// Chooses a time between these numbers of milliseconds.
    pub(super) fn between(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.random.u64(least..=most))
    }
}

/// Waits until a peer's call gives up: after its wait, or without one, when the worker must end.
pub(super) async fn given_up(asked: &Asked, mut draining: watch::Receiver<bool>) -> Outcome {
    match asked.wait {
        Some(wait) => {
            sleep(Duration::from_millis(wait)).await;
            Outcome::Busy
        }
        None => {
            let _ = draining.wait_for(|draining| *draining).await;
            Outcome::Dropped
        }
    }
}

async fn guarded<N: Group>(acquire: Acquire<N>, body: Body) -> Result<(), LockError> {
    let guard: LockGuard<N> = acquire.await?;
    guard.hold(body.run()).await??;
    guard.release().await
}

/// Makes a call whose body blocks the thread that polls it for three TTLs.
async fn blocked(acquire: Acquire, body: Body) -> Result<(), LockError> {
    let guard: LockGuard = acquire.await?;
    let block = async { std::thread::sleep(Duration::from_millis(BRIEF) * 3) };
    guard.hold(async { body.around(Hold::of(current()), block).await }).await?;
    guard.release().await
}

/// Makes a call on a separate thread and executor, so that it does not block other calls.
async fn blocking<T: Send + 'static>(call: impl Future<Output = T> + Send + 'static) {
    let own = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(own) = own else { return };
    // It is always awaited, unless the worker ends.
    let _ = tokio::task::spawn_blocking(move || own.block_on(call)).await;
}

async fn release_by_name(name: &str) -> Result<(), etcd_client::Error> {
    let mut client = login::connect().await?;
    let oldest = GetOptions::new()
        .with_prefix()
        .with_sort(SortTarget::Create, SortOrder::Ascend)
        .with_limit(1);
    let found = client.get(format!("locks/{name}/"), Some(oldest)).await?;
    for key in found.kvs() {
        client.delete(key.key(), None).await?;
    }
    Ok(())
}

/// Makes the call for the only name of a request.
fn acquire(asked: &Asked) -> Acquire {
    let acquire = lock(asked.names.concat()).ttl(Duration::from_millis(asked.ttl));
    match asked.wait {
        Some(wait) => acquire.wait(Duration::from_millis(wait)),
        None => acquire.wait_forever(),
    }
}

fn name(family: &str, n: u64) -> String {
    format!("{family}/{n}")
}

/// Returns the TTL of a name, which is short for every second one.
fn ttl(n: u64) -> u64 {
    if n.is_multiple_of(2) { BRIEF } else { USUAL }
}

fn outcome(called: Result<(), LockError>) -> Outcome {
    match called {
        Ok(()) => Outcome::Done,
        Err(LockError::Held { .. } | LockError::Timeout { .. }) => Outcome::Busy,
        Err(LockError::Lost { cause, .. }) => Outcome::Lost(format!("{cause:?}")),
        Err(LockError::Deadlock { .. }) => Outcome::Deadlock,
        Err(error @ (LockError::Backend { .. } | LockError::PermissionDenied { .. })) => {
            Outcome::Refused(error.to_string())
        }
        Err(error) => Outcome::Wrong(error.to_string()),
    }
}
