//! Calls that a worker makes: annotated functions and `lock()`, of every kind.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use etcd_locked::{Acquire, Group, LockError, LockGuard, current, etcd_locked, lock, lock_names};
use fastrand::Rng;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::body::{Body, Polls};
use super::connection::WitnessConnection;
use super::etcdctl::Etcdctl;
use super::mix::Kind;
use super::sabotage::{Sabotage, release_by_name};
use super::service::Owner;
use crate::history::{Asked, Mode, Outcome, Said};
use crate::options::word;

/// How many hot names there are; every worker wants each of them all the time.
pub(crate) const HOT: u64 = 6;
const COLD: u64 = 200;
const FEW: u64 = 3;
/// How many names are locked one under the other.
const NESTED: u64 = 8;
/// How many names have long holders.
const LONG: u64 = 12;
/// How many names have one task in each process: on these, places in etcd's queue are compared across processes.
pub(super) const TURNS: u64 = 2;
/// The permits of a name.
const PERMITS: u16 = 3;
/// The wait of most calls.
const WAIT: Duration = Duration::from_secs(10);

/// Another way to lock, of one task.
pub(super) enum Peer {
    Service(Box<Owner>),
    Etcdctl(Etcdctl),
}

/// One task's calls.
pub(super) struct Caller {
    pub(super) witness: WitnessConnection,
    pub(super) random: Rng,
    pub(super) sabotage: Option<Sabotage>,
    /// A peer, with which exclusive calls are made instead.
    pub(super) peer: Option<Peer>,
    /// True once the worker is to end.
    pub(super) draining: watch::Receiver<bool>,
}

lock_names! {
    /// Locked one under the other.
    Nest = "nest/<n: u64>";
}

#[etcd_locked("hot/<n>", ttl = "2s", wait = "10s")]
async fn brief(n: u64, body: Body) -> Result<(), LockError> {
    body.run().await;
    Ok(())
}

#[etcd_locked("hot/<n>", ttl = "10s", wait = "10s")]
async fn usual(n: u64, body: Body) -> Result<(), LockError> {
    body.run().await;
    Ok(())
}

#[etcd_locked("book/<n>", ttl = "2s", wait = "10s", shared)]
async fn reader(n: u64, body: Body) -> Result<(), LockError> {
    body.run().await;
    Ok(())
}

#[etcd_locked("book/<n>", ttl = "2s", wait = "10s")]
async fn writer(n: u64, body: Body) -> Result<(), LockError> {
    body.run().await;
    Ok(())
}

#[etcd_locked("seat/<n>", ttl = "2s", wait = "10s", permits = 3)]
async fn permit(n: u64, body: Body) -> Result<(), LockError> {
    body.run().await;
    Ok(())
}

#[etcd_locked("pair/<a>", "pair/<b>", "hot/<b>", ttl = "10s", wait = "10s")]
async fn group(a: u64, b: u64, body: Body) -> Result<(), LockError> {
    body.run().await;
    Ok(())
}

#[etcd_locked("hot/<n>", ttl = "10s", wait = "none")]
async fn once(n: u64, body: Body) -> Result<(), LockError> {
    body.run().await;
    Ok(())
}

/// A try of a name that mostly is free.
#[etcd_locked("cold/<n>", ttl = "10s", wait = "none")]
async fn once_cold(n: u64, body: Body) -> Result<(), LockError> {
    body.run().await;
    Ok(())
}

#[etcd_locked("hot/<n>", ttl = "10s", wait = "10s", detach)]
async fn detached(n: u64, body: Body) -> Result<(), LockError> {
    body.run().await;
    Ok(())
}

#[etcd_locked("rest/<n>", ttl = "2s", wait = "10s", at_least = "500ms")]
async fn retained(n: u64, body: Body) -> Result<(), LockError> {
    body.run().await;
    Ok(())
}

#[etcd_locked("hot/<n>", ttl = "10s", wait = "10s")]
async fn panicking(n: u64, body: Body) -> Result<(), LockError> {
    body.run().await;
    // No message on the terminal: the panic is on purpose.
    std::panic::resume_unwind(Box::new("the body panics"))
}

#[etcd_locked(name, ttl = "2s", wait = "10s", on_lost = "continue")]
async fn careless(name: String, body: Body) -> Result<(), LockError> {
    body.run().await;
    Ok(())
}

/// A call that was asked and has not returned; dropped, its caller has dropped it.
struct Pending {
    witness: WitnessConnection,
    call: u64,
    result: Outcome,
}

impl Pending {
    /// Waits for the answer of the call.
    async fn answered(mut self, call: impl Future<Output = Result<(), LockError>>) -> Outcome {
        self.result = outcome(call.await);
        self.result.clone()
    }

    /// Waits so long, then drops the call.
    async fn answered_within(
        self,
        patience: Duration,
        call: impl Future<Output = Result<(), LockError>>,
    ) {
        let _ = timeout(patience, self.answered(call)).await;
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.witness.say(Said::Returned { call: self.call, result: self.result.clone() });
    }
}

/// What a call asks for, in the words of the history.
struct Asking {
    kind: Kind,
    names: Vec<String>,
    mode: Mode,
    wait: Option<Duration>,
    ttl: Duration,
    at_least: Duration,
    /// The call in whose body it is made.
    under: Option<u64>,
}

impl Asking {
    /// Asks for these names alone, with the usual wait.
    fn alone<const N: usize>(kind: Kind, names: [String; N], ttl: Duration) -> Self {
        let mut names = names.to_vec();
        names.dedup(); // a call locks equal names once
        Self {
            kind,
            names,
            mode: Mode::Exclusive,
            wait: Some(WAIT),
            ttl,
            at_least: Duration::ZERO,
            under: None,
        }
    }
}

impl Caller {
    /// Makes one call for a hot name, as every worker does all the time.
    pub(super) async fn hot(&mut self, n: u64) {
        let lasts = self.between(2, 30);
        if self.peer.is_some() {
            let asking = Asking::alone(Kind::Hot, [name("hot", n)], ttl(n));
            return self.by_peer(asking, lasts).await;
        }
        if self.sabotage.is_some() {
            return self.sabotaged(Kind::Hot, name("hot", n), ttl(n), lasts).await;
        }
        let (pending, body) = self.ask(Asking::alone(Kind::Hot, [name("hot", n)], ttl(n)), lasts);
        match ttl(n) {
            BRIEF => pending.answered(brief(n, body)).await,
            _ => pending.answered(usual(n, body)).await,
        };
    }

    /// Makes one call for a name that one task of each process wants, and waits until its key is gone.
    pub(super) async fn turn(&mut self, n: u64) {
        let lasts = self.between(1_000, 1_500);
        self.by_hand(Asking::alone(Kind::Turn, [name("turn", n)], USUAL), lasts).await;
        sleep(self.between(300, 500)).await;
    }

    /// Makes one call of this kind.
    pub(super) async fn call(&mut self, kind: Kind) {
        let lasts = self.between(2, 60);
        let (n, few) = (self.random.u64(0..HOT), self.random.u64(0..FEW));
        let hot = |ttl| Asking::alone(kind, [name("hot", n)], ttl);
        match kind {
            Kind::Exclusive if self.sabotage.is_some() => {
                self.sabotaged(kind, name("hot", n), ttl(n), lasts).await;
            }
            Kind::Long if self.sabotage.is_some() => {
                let lasts = self.between(1_000, 4_000);
                self.sabotaged(kind, name("long", few), ttl(few), lasts).await;
            }
            Kind::Hot => self.hot(n).await,
            Kind::Turn => self.turn(n % TURNS).await,
            Kind::Exclusive => self.by_hand(hot(ttl(n)), lasts).await,
            Kind::Cold => {
                let n = self.random.u64(0..COLD);
                self.by_hand(Asking::alone(kind, [name("cold", n)], ttl(n)), lasts).await;
            }
            Kind::Long => {
                let lasts = self.between(3_000, 12_000);
                let n = self.random.u64(0..LONG);
                let asking = Asking::alone(kind, [name("long", n)], ttl(n));
                self.by_hand(Asking { wait: None, ..asking }, lasts).await;
            }
            Kind::Shared => {
                let asking = Asking::alone(kind, [name("book", few)], BRIEF);
                let (pending, body) = self.ask(Asking { mode: Mode::Shared, ..asking }, lasts);
                pending.answered(reader(few, body)).await;
            }
            Kind::Writer => {
                let (pending, body) =
                    self.ask(Asking::alone(kind, [name("book", few)], BRIEF), lasts);
                pending.answered(writer(few, body)).await;
            }
            Kind::Permit => {
                let mode = Mode::Permits(PERMITS);
                let asking = Asking::alone(kind, [name("seat", few)], BRIEF);
                let (pending, body) = self.ask(Asking { mode, ..asking }, lasts);
                pending.answered(permit(few, body)).await;
            }
            Kind::Group => {
                let names = [name("pair", few), name("pair", n), name("hot", n)];
                let (pending, body) = self.ask(Asking::alone(kind, names, USUAL), lasts);
                pending.answered(group(few, n, body)).await;
            }
            Kind::Try => {
                let wait = Some(Duration::ZERO);
                if self.random.bool() {
                    let (pending, body) = self.ask(Asking { wait, ..hot(USUAL) }, lasts);
                    pending.answered(once(n, body)).await;
                } else {
                    let n = self.random.u64(0..COLD);
                    let asking = Asking::alone(kind, [name("cold", n)], USUAL);
                    let (pending, body) = self.ask(Asking { wait, ..asking }, lasts);
                    pending.answered(once_cold(n, body)).await;
                }
            }
            Kind::Bounded => {
                let wait = Some(self.between(20, 400));
                self.by_hand(Asking { wait, ..hot(ttl(n)) }, lasts).await;
            }
            Kind::Dropped => {
                let patience = self.between(0, 150);
                let (pending, body) = self.ask(hot(USUAL), lasts);
                pending.answered_within(patience, usual(n, body)).await;
            }
            Kind::Detached => {
                let patience = self.between(0, 300);
                let (pending, body) = self.ask(hot(USUAL), lasts);
                pending.answered_within(patience, detached(n, body)).await;
            }
            Kind::Nested => self.nested(lasts).await,
            Kind::Panicking => {
                let (pending, body) = self.ask(hot(USUAL), lasts);
                let call = tokio::spawn(pending.answered(panicking(n, body)));
                // Its caller is gone with the panic, and has said so.
                let _ = call.await;
            }
            Kind::Blocking => {
                // Others give up before such a body ends: their tasks have more to do.
                let asking = Asking {
                    wait: Some(Duration::from_secs(1)),
                    ..Asking::alone(kind, [name("block", few)], BRIEF)
                };
                let acquire = acquire(&asking);
                let (pending, body) = self.ask(asking, lasts);
                blocking(pending.answered(blocked(acquire, body))).await;
            }
            Kind::Retained => {
                let at_least = Duration::from_millis(500);
                let asking = Asking::alone(kind, [name("rest", few)], BRIEF);
                let (pending, body) = self.ask(Asking { at_least, ..asking }, lasts);
                pending.answered(retained(few, body)).await;
            }
        }
    }

    /// Locks, works and releases as one does by hand.
    async fn by_hand(&mut self, asking: Asking, lasts: Duration) {
        if self.peer.is_some() {
            return self.by_peer(asking, lasts).await;
        }
        let acquire = acquire(&asking);
        let (pending, body) = self.ask(asking, lasts);
        pending.answered(guarded(acquire, body)).await;
    }

    /// Makes the call by the peer.
    async fn by_peer(&mut self, asking: Asking, lasts: Duration) {
        let (name, ttl) = (asking.names.concat(), asking.ttl);
        let wait = asking.wait;
        let (mut pending, body) = self.ask(asking, lasts);
        match &mut self.peer {
            Some(Peer::Service(owner)) => {
                pending.result = owner.call(&name, ttl, wait, &body).await;
            }
            Some(Peer::Etcdctl(etcdctl)) => {
                pending.result = etcdctl.call(&name, ttl, wait, &body).await;
            }
            None => {}
        }
    }

    /// Asks for one name under another, in any order: calls of two tasks may deadlock.
    async fn nested(&mut self, lasts: Duration) {
        let n = self.random.u64(0..NESTED);
        let other = (n + self.random.u64(1..NESTED)) % NESTED;
        let acquire = |n| lock(Nest { n }).ttl(USUAL).wait(WAIT);
        let asking = |n| Asking::alone(Kind::Nested, [name("nest", n)], USUAL);
        let (pending, body) = self.ask(asking(n), lasts);
        let under = Some(pending.call);
        let call = async {
            let guard = acquire(n).await?;
            let inner = async {
                sleep(lasts / 4).await;
                let asking = asking(other);
                let (pending, body) = self.ask(Asking { under, ..asking }, lasts / 4);
                pending.answered(guarded(acquire(other), body)).await;
            };
            let work = async { body.around(current(), inner).await };
            guard.hold(work).await?;
            guard.release().await
        };
        pending.answered(call).await;
    }

    /// Makes a call with this worker's mistake in it.
    async fn sabotaged(&mut self, kind: Kind, name: String, ttl: Duration, lasts: Duration) {
        let asking = Asking::alone(kind, [name.clone()], ttl);
        let acquire = acquire(&asking);
        let (pending, mut body) = self.ask(asking, lasts);
        match self.sabotage {
            Some(Sabotage::Unlocked) if self.random.u8(0..100) == 0 => {
                let unlocked = async {
                    body.unlocked(&[name]).await;
                    Ok(())
                };
                pending.answered(unlocked).await;
            }
            Some(Sabotage::LyingRenewal) => {
                body.lies = true;
                pending.answered(careless(name, body)).await;
            }
            Some(Sabotage::NoGuard) => {
                let call = async {
                    let guard = acquire.await?;
                    guard.hold(unguarded(body)).await?;
                    guard.release().await
                };
                pending.answered(call).await;
            }
            Some(Sabotage::NoGate) => {
                let call = async {
                    let guard = acquire.await?;
                    ungated(&guard, body).await?;
                    guard.release().await
                };
                pending.answered(call).await;
            }
            sabotage => {
                let called = pending.answered(guarded(acquire, body)).await;
                let without = matches!(called, Outcome::Lost(_) | Outcome::Busy);
                if without && matches!(sabotage, Some(Sabotage::ReleaseByName)) {
                    // Its answer changes nothing: the worker believes that the key was its own.
                    let _ = release_by_name(&name).await;
                }
            }
        }
    }

    /// Says that a call is asked, and how its body is to work.
    fn ask(&self, asking: Asking, lasts: Duration) -> (Pending, Body) {
        let call = self.witness.call();
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let asked = Asked {
            kind: word(asking.kind),
            mode: asking.mode,
            wait: asking.wait.map(milliseconds),
            ttl: milliseconds(asking.ttl),
            at_least: milliseconds(asking.at_least),
            under: asking.under,
            names: asking.names,
        };
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

    /// Chooses a time between so many milliseconds.
    pub(super) fn between(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.random.u64(least..=most))
    }
}

async fn guarded<N: Group>(acquire: Acquire<N>, body: Body) -> Result<(), LockError> {
    let guard: LockGuard<N> = acquire.await?;
    guard.hold(body.run()).await?;
    guard.release().await
}

/// Makes a call whose body blocks the thread that polls it for three TTLs.
async fn blocked(acquire: Acquire, body: Body) -> Result<(), LockError> {
    let guard: LockGuard = acquire.await?;
    let block = async { std::thread::sleep(BRIEF * 3) };
    guard.hold(async { body.around(current(), block).await }).await?;
    guard.release().await
}

/// Makes a call on a thread and an executor of its own, so that it blocks no other call.
async fn blocking<T: Send + 'static>(call: impl Future<Output = T> + Send + 'static) {
    let own = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(own) = own else { return };
    // It is not awaited only if the worker ends.
    let _ = tokio::task::spawn_blocking(move || own.block_on(call)).await;
}

/// Runs a body in a task of its own, where the guard does not reach it.
async fn unguarded(body: Body) {
    let locks = current();
    let task = tokio::spawn(body.run_under(locks));
    let _ = task.await;
}

/// Runs a body until it ends, or until its task learns that the lock is lost.
async fn ungated(guard: &LockGuard, body: Body) -> Result<(), LockError> {
    let locks = guard.hold(async { current() }).await?;
    tokio::select! {
        biased;
        () = body.run_under(locks) => Ok(()),
        _ = guard.lost() => guard.hold(async {}).await,
    }
}

/// The call for the one name that was asked for.
fn acquire(asking: &Asking) -> Acquire {
    let acquire = lock(asking.names.concat()).ttl(asking.ttl);
    match asking.wait {
        Some(wait) => acquire.wait(wait),
        None => acquire.wait_forever(),
    }
}

fn name(family: &str, n: u64) -> String {
    format!("{family}/{n}")
}

const BRIEF: Duration = Duration::from_secs(2);
const USUAL: Duration = Duration::from_secs(10);

/// The TTL of a name: brief for every other.
fn ttl(n: u64) -> Duration {
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
