//! Lock service of etcd, as one uses it by hand through etcd-client: a peer under the same faults.
//!
//! Each task has a lease of its own, because a lease is one owner, and a task that renews it. A body stops once that task says that
//! the lease is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use etcd_client::{Client, Error, LockOptions};
use tokio::time::{sleep, timeout};

use super::body::Body;
use super::line::Line;
use crate::clock::now;
use crate::history::{Ending, Outcome, Said};
use crate::login;

/// The name under which it runs.
pub(crate) const NAME: &str = "lock-service";

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
    lives: Arc<AtomicBool>,
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
        Ok(Self {
            client,
            lease: None,
        })
    }

    /// Makes one call: locks, works, unlocks.
    pub(super) async fn call(
        &mut self,
        name: &str,
        ttl: Duration,
        wait: Duration,
        body: &Body,
    ) -> Outcome {
        match timeout(wait, self.lock(name, ttl)).await {
            Err(_) => {
                // The request may still be queued at etcd; its lease ends it.
                self.give_up().await;
                Outcome::Busy
            }
            Ok(Err(error)) => {
                self.give_up().await;
                Outcome::Refused(error.to_string())
            }
            Ok(Ok((key, token))) => {
                if !self.work(name, token, body).await {
                    return Outcome::Lost("Expired".to_owned());
                }
                let unlocked = timeout(Duration::from_secs(2), self.client.unlock(key)).await;
                match unlocked {
                    Ok(Ok(_)) => Outcome::Done,
                    Ok(Err(error)) => Outcome::Refused(error.to_string()),
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
            Some(lease) if lease.ttl == ttl && lease.lives.load(Ordering::Acquire) => lease.id,
            _ => self.grant(ttl).await?,
        };
        let options = LockOptions::new().with_lease(id);
        let mut answer = self
            .client
            .lock(format!("locks/{name}"), Some(options))
            .await?;
        let revision = answer.take_header().map_or(0, |header| header.revision());
        Ok((answer.key().to_vec(), revision << 16))
    }

    async fn grant(&mut self, ttl: Duration) -> Result<i64, Error> {
        self.give_up().await;
        let seconds = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX);
        let id = self.client.lease_grant(seconds, None).await?.id();
        let lives = Arc::new(AtomicBool::new(true));
        tokio::spawn(renew(self.client.clone(), id, ttl, lives.clone()));
        self.lease = Some(Lease { id, ttl, lives });
        Ok(id)
    }

    /// Gives the lease back, and with it what is queued or held under it.
    pub(super) async fn give_up(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.lives.store(false, Ordering::Release);
            let _ = timeout(Duration::from_secs(1), self.client.lease_revoke(lease.id)).await;
        }
    }

    /// Works under the lock; false if the lease was lost before.
    async fn work(&self, name: &str, token: i64, body: &Body) -> bool {
        let held = || {
            let lives = self.lease.as_ref().map(|lease| &lease.lives);
            lives.is_some_and(|lives| lives.load(Ordering::Acquire))
        };
        let (line, call): (&Line, u64) = (&body.line, body.call);
        let tokens = vec![(name.to_owned(), token)];
        let (at, is_held) = (now(), held());
        line.acknowledged(
            at,
            call,
            Said::Begun {
                call,
                held: is_held,
                tokens,
            },
        )
        .await;
        let write = Said::Write {
            call,
            name: name.to_owned(),
            token,
        };
        line.acknowledged(now(), call, write).await;
        let end = tokio::time::Instant::now() + body.lasts;
        while tokio::time::Instant::now() < end && !*body.draining.borrow() {
            let (at, held) = (now(), held());
            if !held {
                let how = Ending::Dropped;
                line.say_at(at, Said::Ended { call, held, how });
                return false;
            }
            line.say_at(at, Said::Polled { call, held });
            sleep(Duration::from_millis(10)).await;
        }
        let (at, held) = (now(), held());
        let how = Ending::Done;
        line.say_at(at, Said::Ended { call, held, how });
        held
    }
}

/// Renews a lease every third of its TTL, until etcd says that it is gone, or nothing for a TTL.
async fn renew(mut client: Client, id: i64, ttl: Duration, lives: Arc<AtomicBool>) {
    let renewed = async |client: &mut Client| -> Result<bool, Error> {
        let (mut keeper, mut answers) = client.lease_keep_alive(id).await?;
        loop {
            keeper.keep_alive().await?;
            match answers.message().await? {
                Some(answer) if answer.ttl() > 0 => sleep(ttl / 3).await,
                _ => return Ok(false),
            }
            if !lives.load(Ordering::Acquire) {
                return Ok(false);
            }
        }
    };
    // A stream that breaks is opened again.
    while lives.load(Ordering::Acquire) {
        match renewed(&mut client).await {
            Ok(_) => break,
            Err(_) => sleep(Duration::from_millis(200)).await,
        }
    }
    lives.store(false, Ordering::Release);
}
