//! Body of a call: says that it has begun, that it is polled, and how it has ended.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use etcd_locked::Current;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::connection::WitnessConnection;
use crate::clock::now;
use crate::history::{Ending, Said};

/// The longest pause between two polls of a body.
const POLL: Duration = Duration::from_millis(10);

/// What the body of one call does.
#[derive(Debug, Clone)]
pub(super) struct Body {
    pub(super) witness: WitnessConnection,
    pub(super) call: u64,
    pub(super) lasts: Duration,
    /// It writes to the register, as one who has the name alone.
    pub(super) writes: bool,
    /// It says "held" whatever the guard says.
    pub(super) lies: bool,
    /// True once the worker is to end; then the body has no more to do.
    pub(super) draining: watch::Receiver<bool>,
    pub(super) polls: Arc<Polls>,
}

/// Polls of a body: the gate stands before each, and a loss is said once in each.
#[derive(Debug, Default)]
pub(super) struct Polls {
    /// How often it was polled.
    number: AtomicU64,
    /// The last poll in which it said that its lock is lost.
    late: AtomicU64,
}

impl Polls {
    /// Notes that this poll says a loss; true if it had not yet.
    fn first_loss(&self) -> bool {
        let poll = self.number.load(Ordering::Relaxed);
        self.late.swap(poll, Ordering::Relaxed) != poll
    }
}

impl Body {
    /// Waits until a peer's call gives up: after its wait, or once the worker is to end if it has none.
    pub(super) async fn given_up(&self, wait: Option<Duration>) {
        let mut draining = self.draining.clone();
        match wait {
            Some(wait) => sleep(wait).await,
            None => _ = draining.wait_for(|draining| *draining).await,
        }
    }

    /// Works under the current locks for its time.
    pub(super) async fn run(self) {
        self.run_under(etcd_locked::current()).await;
    }

    /// Works under these locks for its time.
    pub(super) async fn run_under(self, locks: Option<Current>) {
        let mut draining = self.draining.clone();
        let work = timeout(self.lasts, async move {
            let _ = draining.wait_for(|draining| *draining).await;
        });
        let _ = self.around(locks, work).await;
    }

    /// Works until something else under these locks is done.
    pub(super) async fn around<F: Future>(self, locks: Option<Current>, other: F) -> F::Output {
        let polls = self.polls.clone();
        let mut work = Box::pin(self.work(locks, other));
        poll_fn(|context| {
            polls.number.fetch_add(1, Ordering::Relaxed);
            work.as_mut().poll(context)
        })
        .await
    }

    async fn work<F: Future>(self, locks: Option<Current>, other: F) -> F::Output {
        let at = now();
        let held = self.held(locks.as_ref());
        let tokens = tokens(locks.as_ref());
        let mut open = Open { body: &self, locks: locks.as_ref(), how: Ending::Dropped };
        self.begun(at, held, tokens.clone()).await;
        self.polled(locks.as_ref());
        self.write(&tokens, locks.as_ref()).await;
        let mut other = pin!(other);
        let output = loop {
            tokio::select! {
                output = &mut other => break output,
                () = sleep(POLL) => self.polled(locks.as_ref()),
            }
        };
        self.write(&tokens, locks.as_ref()).await;
        open.how = Ending::Done;
        output
    }

    /// Works without any lock.
    pub(super) async fn unlocked(mut self, names: &[String]) {
        self.lies = true;
        self.writes = false;
        let tokens = names.iter().map(|name| (name.clone(), 0)).collect();
        let _open = Open { body: &self, locks: None, how: Ending::Done };
        self.begun(now(), true, tokens).await;
        sleep(self.lasts).await;
    }

    fn polled(&self, locks: Option<&Current>) {
        let (at, held) = (now(), self.held(locks));
        let call = self.call;
        if held || self.polls.first_loss() {
            self.witness.say_at(at, Said::Polled { call, held });
        }
    }

    async fn begun(&self, at: u64, held: bool, tokens: Vec<(String, i64)>) {
        let call = self.call;
        if !held {
            self.polls.first_loss();
        }
        let said = Said::Begun { call, held, tokens };
        self.witness.acknowledged(at, call, said).await;
    }

    /// Writes to the register of each name. A write that is not acknowledged may come late, as with any store.
    async fn write(&self, tokens: &[(String, i64)], locks: Option<&Current>) {
        for (name, token) in tokens.iter().filter(|_| self.writes) {
            let (at, held) = (now(), self.held(locks));
            let said = Said::Write {
                call: self.call,
                name: name.clone(),
                token: *token,
                held: (held || self.polls.first_loss()).then_some(held),
            };
            self.witness.acknowledged(at, self.call, said).await;
        }
    }

    /// Reads what the guard says. The clock is to be read before: then the lock was held at that time.
    fn held(&self, locks: Option<&Current>) -> bool {
        self.lies || locks.is_some_and(Current::is_held)
    }
}

fn tokens(locks: Option<&Current>) -> Vec<(String, i64)> {
    let tokens = locks.into_iter().flat_map(Current::tokens);
    tokens
        .map(|(name, token)| (name.text().unwrap_or_default().to_owned(), token.as_i64()))
        .collect()
}

/// A body that has begun; dropped, it has ended.
struct Open<'a> {
    body: &'a Body,
    locks: Option<&'a Current>,
    how: Ending,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let at = now();
        let held = self.body.held(self.locks);
        let (call, how) = (self.body.call, self.how);
        // One that is dropped is not polled.
        if how == Ending::Done && !held && self.body.polls.first_loss() {
            self.body.witness.say_at(at, Said::Polled { call, held });
        }
        self.body.witness.say_at(at, Said::Ended { call, held, how });
    }
}
