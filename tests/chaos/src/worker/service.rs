//! Lock service of etcd, used by hand through etcd-client: a peer under the same faults.
//!
//! Each task has its own lease, because a lease is one owner, and another task that renews it. A body stops when that task reports
//! that the lease is gone.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use etcd_client::{Client, Error, LockOptions};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::body::{Body, Hold};
use super::calls::given_up;
use crate::clock::{ms, now};
use crate::history::{Asked, Outcome};
use crate::login;

/// How long a worker tries to log in: longer than any fault lasts.
const PATIENCE: Duration = Duration::from_secs(40);

/// Client and lease of one task.
pub(super) struct Owner {
    client: Client,
    /// Lease, and the task that renews it.
    lease: Option<(Arc<Lease>, AbortHandle)>,
}

/// Lease, with the state of its renewal.
#[derive(Debug)]
struct Lease {
    id: i64,
    ttl: u64,
    /// Until when it certainly lives: one TTL after the last successful renewal was sent.
    until: AtomicU64,
    /// True after etcd has reported that it is gone.
    gone: AtomicBool,
}

impl Owner {
    pub(super) async fn connect() -> Result<Self, Error> {
        let start = tokio::time::Instant::now();
        // A worker may start while etcd refuses logins.
        loop {
            match login::connect().await {
                Ok(client) => return Ok(Self { client, lease: None }),
                Err(error) if start.elapsed() > PATIENCE => return Err(error),
                Err(_) => sleep(Duration::from_millis(200)).await,
            }
        }
    }

    /// Makes one call: locks, works, unlocks.
    pub(super) async fn call(&mut self, asked: &Asked, body: Body) -> Outcome {
        let draining = body.draining.clone();
        let locked = tokio::select! {
            locked = self.lock(asked) => locked,
            outcome = given_up(asked, draining) => {
                // The request may still be queued at etcd; its lease ends it.
                self.give_up().await;
                return outcome;
            }
        };
        let done = match locked {
            Ok((lease, key, token)) => {
                if !lease.work(&asked.names, token, body).await {
                    let gone = lease.gone.load(Ordering::Acquire);
                    return Outcome::Lost(if gone { "Gone" } else { "Expired" }.to_owned());
                }
                match timeout(Duration::from_secs(2), self.client.unlock(key)).await {
                    Ok(unlocked) => unlocked.map(drop).map_err(|error| error.to_string()),
                    Err(_) => Err("no answer to the unlock".to_owned()),
                }
            }
            Err(error) => Err(error.to_string()),
        };
        match done {
            Ok(()) => Outcome::Done,
            Err(error) => {
                // Its key would exist for as long as its lease is renewed.
                self.give_up().await;
                Outcome::Refused(error)
            }
        }
    }

    /// Returns the lease, the key and the token of the lock.
    async fn lock(&mut self, asked: &Asked) -> Result<(Arc<Lease>, Vec<u8>, i64), Error> {
        let lease = match &self.lease {
            Some((lease, _)) if lease.ttl == asked.ttl && lease.lives() => lease.clone(),
            _ => self.grant(asked.ttl).await?,
        };
        let options = LockOptions::new().with_lease(lease.id);
        let name = format!("locks/{}", asked.names.concat());
        let mut answer = self.client.lock(name, Some(options)).await?;
        let revision = answer.take_header().map_or(0, |header| header.revision());
        Ok((lease, answer.key().to_vec(), revision << 16))
    }

    async fn grant(&mut self, ttl: u64) -> Result<Arc<Lease>, Error> {
        self.give_up().await;
        let seconds = i64::try_from(ttl / 1_000).unwrap_or(i64::MAX);
        let sent = now();
        let lease = Arc::new(Lease {
            id: self.client.lease_grant(seconds, None).await?.id(),
            ttl,
            until: AtomicU64::new(sent + ms(ttl)),
            gone: AtomicBool::new(false),
        });
        let (mut client, renewed) = (self.client.clone(), lease.clone());
        let renewal = tokio::spawn(async move {
            // A stream that breaks, or gets no response, is opened again.
            while renewed.lives() {
                // An error is not final: the lease may live on.
                let _ = renewed.renew(&mut client).await;
                sleep(Duration::from_millis(200)).await;
            }
        });
        self.lease = Some((lease.clone(), renewal.abort_handle()));
        Ok(lease)
    }

    /// Revokes the lease, and with it everything queued or held under it.
    pub(super) async fn give_up(&mut self) {
        if let Some((lease, renewal)) = self.lease.take() {
            renewal.abort();
            let _ = timeout(Duration::from_secs(1), self.client.lease_revoke(lease.id)).await;
        }
    }
}

impl Lease {
    /// Returns true if it lives. Read the clock before.
    fn lives(&self) -> bool {
        !self.gone.load(Ordering::Acquire) && now() < self.until.load(Ordering::Acquire)
    }

    /// Works under the lock; returns false if the lease was lost before the end.
    async fn work(self: &Arc<Self>, names: &[String], token: i64, body: Body) -> bool {
        let lease = self.clone();
        let hold = Hold {
            tokens: names.iter().map(|name| (name.clone(), token)).collect(),
            is_held: Box::new(move || lease.lives()),
        };
        let mut work = pin!(body.run_under(hold));
        poll_fn(|context| match self.lives() {
            true => work.as_mut().poll(context).map(|()| self.lives()),
            false => Poll::Ready(false),
        })
        .await
    }

    /// Renews it every third of its TTL, until etcd reports that it is gone, or does not respond for that long.
    async fn renew(&self, client: &mut Client) -> Result<(), Error> {
        let third = Duration::from_millis(self.ttl / 3);
        let Ok(opened) = timeout(third, client.lease_keep_alive(self.id)).await else {
            return Ok(());
        };
        let (mut keeper, mut answers) = opened?;
        loop {
            let sent = now();
            keeper.keep_alive().await?;
            let Ok(answer) = timeout(third, answers.message()).await else {
                return Ok(());
            };
            let Some(answer) = answer? else { return Ok(()) };
            if answer.ttl() == 0 {
                self.gone.store(true, Ordering::Release);
                return Ok(());
            }
            self.until.store(sent + ms(self.ttl), Ordering::Release);
            sleep(third).await;
        }
    }
}
