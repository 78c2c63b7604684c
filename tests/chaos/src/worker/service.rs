//! Lock service of etcd, as one uses it by hand through etcd-client: a peer under the same faults.
//!
//! Each task has a lease of its own, because a lease is one owner, and a task that renews it. A body stops once that task says that
//! the lease is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use etcd_client::{Client, Error, LockOptions};
use tokio::time::{sleep, timeout};

use super::body::Body;
use super::connection::WitnessConnection;
use crate::clock::now;
use crate::history::{Ending, Outcome, Said};
use crate::login;

/// How long a worker tries to log in, which is longer than any fault lasts.
const PATIENCE: Duration = Duration::from_secs(40);

/// One task's client and lease.
pub(super) struct Owner {
    client: Client,
    lease: Option<Lease>,
}

#[derive(Debug)]
struct Lease {
    id: i64,
    ttl: Duration,
    state: Arc<State>,
}

/// What the renewal of a lease knows.
#[derive(Debug)]
struct State {
    /// Until when the lease lives at least: the last renewal that was answered was sent a TTL before.
    until: AtomicU64,
    /// etcd has said that it is gone.
    gone: AtomicBool,
    /// It is to be renewed no more.
    given_up: AtomicBool,
}

impl State {
    /// Tells whether the lease lives. The clock is to be read before.
    fn lives(&self) -> bool {
        !self.gone.load(Ordering::Acquire) && now() < self.until.load(Ordering::Acquire)
    }
}

impl Owner {
    pub(super) async fn connect() -> Result<Self, Error> {
        let endpoints = std::env::var("ETCD_LOCKED_ENDPOINTS").unwrap_or_default();
        let endpoints: Vec<&str> = endpoints.split(',').collect();
        let options = login::options().with_auto_token_refresh(true);
        let start = tokio::time::Instant::now();
        // A worker may start while etcd does not log in.
        let client = loop {
            match Client::connect(&endpoints, Some(options.clone())).await {
                Ok(client) => break client,
                Err(error) if start.elapsed() > PATIENCE => return Err(error),
                Err(_) => sleep(Duration::from_millis(200)).await,
            }
        };
        Ok(Self { client, lease: None })
    }

    /// Makes one call: locks, works, unlocks.
    pub(super) async fn call(
        &mut self,
        name: &str,
        ttl: Duration,
        wait: Option<Duration>,
        body: &Body,
    ) -> Outcome {
        let locked = tokio::select! {
            locked = self.lock(name, ttl) => Some(locked),
            () = body.given_up(wait) => None,
        };
        match locked {
            None => {
                // The request may still be queued at etcd; its lease ends it.
                self.give_up().await;
                Outcome::Busy
            }
            Some(Err(error)) => {
                self.give_up().await;
                Outcome::Refused(error.to_string())
            }
            Some(Ok((key, token))) => {
                if !self.work(name, token, body).await {
                    return Outcome::Lost(self.cause().to_owned());
                }
                let unlocked = timeout(Duration::from_secs(2), self.client.unlock(key)).await;
                match unlocked {
                    Ok(Ok(_)) => Outcome::Done,
                    Ok(Err(error)) => {
                        // Its key would be there for as long as its lease is renewed.
                        self.give_up().await;
                        Outcome::Refused(error.to_string())
                    }
                    Err(_) => {
                        self.give_up().await;
                        Outcome::Refused("no answer to the unlock".to_owned())
                    }
                }
            }
        }
    }

    async fn lock(&mut self, name: &str, ttl: Duration) -> Result<(Vec<u8>, i64), Error> {
        let id = match &self.lease {
            Some(lease) if lease.ttl == ttl && lease.state.lives() => lease.id,
            _ => self.grant(ttl).await?,
        };
        let options = LockOptions::new().with_lease(id);
        let mut answer = self.client.lock(format!("locks/{name}"), Some(options)).await?;
        let revision = answer.take_header().map_or(0, |header| header.revision());
        Ok((answer.key().to_vec(), revision << 16))
    }

    async fn grant(&mut self, ttl: Duration) -> Result<i64, Error> {
        self.give_up().await;
        let seconds = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX);
        let sent = now();
        let id = self.client.lease_grant(seconds, None).await?.id();
        let state = Arc::new(State {
            until: AtomicU64::new(sent + nanoseconds(ttl)),
            gone: AtomicBool::new(false),
            given_up: AtomicBool::new(false),
        });
        tokio::spawn(renew(self.client.clone(), id, ttl, state.clone()));
        self.lease = Some(Lease { id, ttl, state });
        Ok(id)
    }

    fn lives(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.state.lives())
    }

    /// Why the lock is lost, in the words of our own library.
    fn cause(&self) -> &'static str {
        let state = self.lease.as_ref().map(|lease| &lease.state);
        match state.is_some_and(|state| state.gone.load(Ordering::Acquire)) {
            true => "Revoked",
            false => "Expired",
        }
    }

    /// Gives the lease back, and with it what is queued or held under it.
    pub(super) async fn give_up(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.state.given_up.store(true, Ordering::Release);
            let _ = timeout(Duration::from_secs(1), self.client.lease_revoke(lease.id)).await;
        }
    }

    /// Works under the lock; false if the lease was lost before.
    async fn work(&self, name: &str, token: i64, body: &Body) -> bool {
        let (witness, call): (&WitnessConnection, u64) = (&body.witness, body.call);
        let tokens = vec![(name.to_owned(), token)];
        let (at, held) = (now(), self.lives());
        if !held {
            return false;
        }
        let begun = Said::Begun { call, held, tokens };
        witness.acknowledged(at, call, begun).await;
        let lost = |at| {
            let (held, how) = (false, Ending::Dropped);
            witness.say_at(at, Said::Ended { call, held, how });
        };
        let (at, held) = (now(), self.lives());
        if !held {
            lost(at);
            return false;
        }
        let write = Said::Write { call, name: name.to_owned(), token, held: Some(held) };
        witness.acknowledged(at, call, write).await;
        let end = tokio::time::Instant::now() + body.lasts;
        while tokio::time::Instant::now() < end && !*body.draining.borrow() {
            let (at, held) = (now(), self.lives());
            if !held {
                lost(at);
                return false;
            }
            witness.say_at(at, Said::Polled { call, held });
            sleep(Duration::from_millis(10)).await;
        }
        let (at, held) = (now(), self.lives());
        if held {
            let how = Ending::Done;
            witness.say_at(at, Said::Ended { call, held, how });
        } else {
            lost(at);
        }
        held
    }
}

/// Renews a lease every third of its TTL, until etcd says that it is gone, or nothing for a TTL.
async fn renew(mut client: Client, id: i64, ttl: Duration, state: Arc<State>) {
    let renewed = async |client: &mut Client| -> Result<(), Error> {
        let Ok(opened) = timeout(ttl / 3, client.lease_keep_alive(id)).await else {
            return Ok(());
        };
        let (mut keeper, mut answers) = opened?;
        loop {
            let sent = now();
            keeper.keep_alive().await?;
            let Ok(answer) = timeout(ttl / 3, answers.message()).await else {
                return Ok(());
            };
            match answer? {
                Some(answer) if answer.ttl() > 0 => {
                    state.until.store(sent + nanoseconds(ttl), Ordering::Release);
                    sleep(ttl / 3).await;
                }
                Some(_) => {
                    state.gone.store(true, Ordering::Release);
                    return Ok(());
                }
                None => return Ok(()),
            }
            if state.given_up.load(Ordering::Acquire) {
                return Ok(());
            }
        }
    };
    // A stream that breaks, or has no answer, is opened again.
    while state.lives() && !state.given_up.load(Ordering::Acquire) {
        // An error is not final: the lease may live on.
        let _ = renewed(&mut client).await;
        sleep(Duration::from_millis(200)).await;
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
