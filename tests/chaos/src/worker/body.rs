//! Body of a call: reports that it has begun, each poll, and how it has ended.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use etcd_locked::{Current, LockError};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::connection::WitnessConnection;
use crate::clock::now;
use crate::history::{Ending, Said};

const POLL: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct Body {
    pub(super) witness: WitnessConnection,
    pub(super) call: u64,
    pub(super) lasts: Duration,
    /// True if it writes to the register, as an exclusive holder.
    pub(super) writes: bool,
    /// True if it reports "held" whatever the guard says.
    pub(super) lies: bool,
    /// True when the worker must end; then the body ends too.
    pub(super) draining: watch::Receiver<bool>,
    pub(super) polls: Arc<Polls>,
}

pub(super) struct Hold {
    /// Token of each name.
    pub(super) tokens: Vec<(String, i64)>,
    /// Returns true if the locks are held. Read the clock before: then they were held at that time.
    pub(super) is_held: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Hold {
    pub(super) fn of(locks: Option<Current>) -> Self {
        let tokens = locks.iter().flat_map(Current::tokens);
        let text = |name: &str| name.to_owned();
        Self {
            tokens: tokens
                .map(|(name, token)| (name.text().map_or(String::new(), text), token.as_i64()))
                .collect(),
            is_held: Box::new(move || locks.as_ref().is_some_and(Current::is_held)),
        }
    }
}

/// Polls of a body: each goes through the gate, and reports a loss once.
#[derive(Debug, Default)]
pub(super) struct Polls {
    number: AtomicU64,
    /// Last poll in which it reported that its lock is lost.
    late: AtomicU64,
}

impl Polls {
    /// Records that this poll reports a loss; returns true if it had not yet.
    fn first_loss(&self) -> bool {
        let poll = self.number.load(Ordering::Relaxed);
        self.late.swap(poll, Ordering::Relaxed) != poll
    }
}

impl Body {
    /// Works under the current locks for its time, as the body of an annotated function.
    pub(super) async fn run(self) -> Result<(), LockError> {
        self.run_under(Hold::of(etcd_locked::current())).await;
        Ok(())
    }

    /// Works under these locks for its time.
    pub(super) async fn run_under(self, hold: Hold) {
        let mut draining = self.draining.clone();
        let work = timeout(self.lasts, async move {
            let _ = draining.wait_for(|draining| *draining).await;
        });
        let _ = self.around(hold, work).await;
    }

    /// Works until another future under these locks completes.
    pub(super) async fn around<F: Future>(self, hold: Hold, other: F) -> F::Output {
        let polls = self.polls.clone();
        let mut work = Box::pin(self.work(hold, other));
        poll_fn(|context| {
            polls.number.fetch_add(1, Ordering::Relaxed);
            work.as_mut().poll(context)
        })
        .await
    }

    async fn work<F: Future>(self, hold: Hold, other: F) -> F::Output {
        let at = now();
        let held = self.is_held(&hold);
        let mut open = Open { body: &self, hold: &hold, how: Ending::Dropped };
        if !held {
            self.polls.first_loss();
        }
        let said = Said::Begun { call: self.call, held, tokens: hold.tokens.clone() };
        self.witness.acknowledged(at, self.call, said).await;
        self.polled(&hold);
        self.write(&hold).await;
        let mut other = pin!(other);
        let output = loop {
            tokio::select! {
                output = &mut other => break output,
                () = sleep(POLL) => self.polled(&hold),
            }
        };
        self.write(&hold).await;
        open.how = Ending::Done;
        output
    }

    fn polled(&self, hold: &Hold) {
        let (at, held) = (now(), self.is_held(hold));
        let call = self.call;
        if held || self.polls.first_loss() {
            self.witness.say_at(at, Said::Polled { call, held });
        }
    }

    /// Writes to the register of each name. A write that is not acknowledged may come late, as with any store.
    async fn write(&self, hold: &Hold) {
        for (name, token) in hold.tokens.iter().filter(|_| self.writes) {
            let (at, held) = (now(), self.is_held(hold));
            let said = Said::Write {
                call: self.call,
                name: name.clone(),
                token: *token,
                held: (held || self.polls.first_loss()).then_some(held),
            };
            self.witness.acknowledged(at, self.call, said).await;
        }
    }

    fn is_held(&self, hold: &Hold) -> bool {
        self.lies || (hold.is_held)()
    }
}

/// Body that has begun; its drop is its end.
struct Open<'a> {
    body: &'a Body,
    hold: &'a Hold,
    how: Ending,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let (at, held) = (now(), self.body.is_held(self.hold));
        let (call, how) = (self.body.call, self.how);
        // A body that is dropped is not polled.
        if how == Ending::Done && !held && self.body.polls.first_loss() {
            self.body.witness.say_at(at, Said::Polled { call, held });
        }
        self.body.witness.say_at(at, Said::Ended { call, held, how });
    }
}
