//! Answers of calls while etcd is out of reach: `Backend`, soon, whatever state the name is in and however long the wait.

use std::future::{Future, IntoFuture, poll_fn};
use std::task::Poll;
use std::time::Duration;

use etcd_client::Client;
use etcd_locked::{Acquire, LockError, LockGuard, Locks};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use crate::corner::{Corner, connect, take};
use crate::etcd::Etcd;
use crate::limit::{self, PATIENCE, run, within};
use crate::logs;

const CONNECT: Duration = Duration::from_secs(4);
/// How long any call may take to answer.
const SOON: Duration = Duration::from_secs(10);
/// A bounded wait that is far longer.
const BOUNDED: Duration = Duration::from_secs(120);
const TTLS: [u64; 2] = [15, 60];

/// What the name is to this process when etcd goes.
#[derive(Debug, Clone, Copy)]
enum State {
    /// No call wants it.
    Idle,
    /// Another process holds it and a call of this one waits.
    Queued,
    /// A call of this process holds it.
    Held,
    /// A call of this process has just given it back, and etcd has not answered.
    Deleting,
}

const STATES: [State; 4] = [State::Idle, State::Queued, State::Held, State::Deleting];

/// How etcd goes.
#[derive(Debug, Clone, Copy)]
enum Outage {
    Stopped,
    Killed,
}

/// An engine of its own for each case: what one notices is no help to another.
struct Case {
    what: String,
    state: State,
    locks: Locks,
    held: Option<LockGuard>,
    /// Calls that waited before.
    waiting: Vec<(&'static str, Answer)>,
}

/// What one call got.
struct Outcome {
    what: String,
    took: Duration,
    error: Result<LockError, &'static str>,
}

type Answer = JoinHandle<Result<LockGuard, LockError>>;

impl Case {
    async fn prepare(corner: &Corner, ttl: u64, state: State) -> Case {
        let config = corner.config().connect_timeout(CONNECT);
        let locks = connect(config.ttl(Duration::from_secs(ttl))).await;
        let mut case = Case {
            what: format!("TTL {ttl} s, {state:?}"),
            state,
            held: None,
            waiting: Vec::new(),
            locks,
        };
        // Every engine has a session, so that the outage meets its exchanges and not its first connection.
        let first = case.locks.lock(format!("first/{ttl}/{state:?}"));
        within("a free name", first)
            .await
            .expect("a free name")
            .release()
            .await
            .expect("a release");
        let name = case.name();
        match state {
            State::Idle => {}
            State::Queued => {
                stranger(corner.client.clone(), &corner.below(&name)).await;
                case.waiting.push(("a call in the queue", spawn(case.call())));
                corner.until_contenders(&name, 2).await;
            }
            State::Held => {
                case.held = Some(case.call().await.expect("a free name"));
                case.waiting.push(("a call in the queue", spawn(case.call())));
            }
            State::Deleting => case.held = Some(case.call().await.expect("a free name")),
        }
        case
    }

    fn name(&self) -> String {
        format!("jobs/{}", self.what.replace([' ', ','], "-"))
    }

    fn call(&self) -> Acquire {
        self.locks.lock(self.name()).wait_forever()
    }

    /// Makes the calls of the outage; what each answers, and when.
    async fn outcomes(mut self, began: Instant) -> Vec<Outcome> {
        if matches!(self.state, State::Deleting) {
            drop(self.held.take());
            // The engine has it before the next call, which it would be refused behind.
            let tried = self.locks.lock(self.name()).try_once();
            let mut tried = Box::pin(tried.into_future());
            let first = poll_fn(|cx| Poll::Ready(tried.as_mut().poll(cx))).await;
            let answer = match first {
                Poll::Ready(answer) => tokio::spawn(async { answer }),
                Poll::Pending => tokio::spawn(tried),
            };
            self.waiting.push(("a try", answer));
            let bounded = self.locks.lock(self.name()).wait(BOUNDED);
            self.waiting.push(("a bounded wait", spawn(bounded)));
        }
        self.waiting.push(("a wait without bound", spawn(self.call())));
        let mut answers = JoinSet::new();
        for (which, answer) in std::mem::take(&mut self.waiting) {
            let what = format!("{}, {which}", self.what);
            answers.spawn(async move {
                let answer = timeout(PATIENCE, answer).await;
                let took = began.elapsed();
                let error = match answer {
                    Err(_) => Err("nothing"),
                    Ok(answer) => answer.expect("no panic").err().ok_or("a lock"),
                };
                Outcome { what, took, error }
            });
        }
        answers.join_all().await
    }
}

/// Another process's key, as no engine of this one knows it.
async fn stranger(mut client: Client, below: &str) {
    let key = format!("{below}1234");
    client.put(key, "", None).await.expect("etcd takes a put");
}

fn spawn(call: Acquire) -> Answer {
    tokio::spawn(call.into_future())
}

async fn all_answer_soon(outage: Outage) {
    let mut etcd = Etcd::start().await;
    let corner = Corner::of(&etcd).await;
    let mut cases = Vec::new();
    for ttl in TTLS {
        for state in STATES {
            cases.push(Case::prepare(&corner, ttl, state).await);
        }
    }
    match outage {
        Outage::Stopped => etcd.stop(),
        Outage::Killed => etcd.kill(),
    }
    let began = Instant::now();
    let cases: JoinSet<_> = cases.into_iter().map(|case| case.outcomes(began)).collect();
    let outcomes: Vec<_> = cases.join_all().await.into_iter().flatten().collect();
    if let Outage::Stopped = outage {
        etcd.cont();
    }
    let mut wrong = Vec::new();
    for outcome in outcomes {
        let Outcome { what, took, error } = outcome;
        println!("{outage:?}: {what}: {error:?} after {took:.1?}");
        if !matches!(error, Ok(LockError::Backend { .. })) || took > SOON {
            wrong.push(format!("{what}: {error:?} after {took:.1?}"));
        }
    }
    wrong.sort();
    assert!(wrong.is_empty(), "{outage:?}: not `Backend` within {SOON:?}: {wrong:#?}");
}

#[test]
fn every_call_answers_soon_when_etcd_is_frozen() {
    run(all_answer_soon(Outage::Stopped));
}

#[test]
fn every_call_answers_soon_when_etcd_is_killed() {
    run(all_answer_soon(Outage::Killed));
}

#[limit::test]
async fn bodies_run_on_and_calls_fail_in_a_short_outage() {
    logs::collect();
    let mut etcd = Etcd::start().await;
    let corner = Corner::of(&etcd).await;
    let locks = connect(corner.config().connect_timeout(CONNECT)).await;
    let held = take("a free name", locks.lock("held")).await;
    etcd.kill();
    let refused = within("a refusal", locks.lock("wanted")).await;
    let refused = refused.expect_err("etcd is out of reach");
    let is_backend = matches!(refused, LockError::Backend { .. });
    assert!(is_backend && refused.is_retryable(), "{refused:?}");
    etcd.start_again().await;
    let served = async {
        while locks.lock("wanted").await.is_err() {
            sleep(Duration::from_millis(20)).await; // not in a busy loop
        }
    };
    within("a lock", served).await;
    assert!(held.is_held());
    logs::until(&["etcd.lost", "etcd.back"]).await;
}
