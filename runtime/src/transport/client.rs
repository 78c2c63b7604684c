//! Client of an etcd cluster: sends requests to one endpoint after another until one responds (rules P6, P8, P30, P32 to P35).

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use etcd_client::Error;
use etcd_locked_core::{
    Cause, Failure, LeaseId, Op, Refusal, Request, Response, Sent, Txn, TxnAnswer,
};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::convert::{keys_under, malformed, send};
use super::endpoint::{Connection, Endpoint, Means};
#[cfg(feature = "etcd-client")]
use super::errors::{all, unopened};
use super::errors::{named, silence, unserved, wants_another_connection};
use super::page::Page;
use super::reach::Reach;
use super::renewal::{End, Renewal, Renewals, Renewed, Stream};
use super::ring::Ring;
use super::scout::Scout;
use crate::clock::{Clock, Moment, by, until};
use crate::values::Config;

/// Time limit of a write. etcd itself gives up after 7 s with `request timed out`, which says no more than our own time-out: either way
/// the outcome is ambiguous, and a barrier settles it (rule P10). A write proposed to a leader that dies gets no response. The next
/// leader is there within about two seconds, and callers wait ten.
const EXCHANGE: Duration = Duration::from_secs(3);

/// Time limit of a read on one endpoint. It can be short, because a read can be resent.
const READ: Duration = Duration::from_secs(2);

/// Time limit for finding out etcd's revision when a lease is gone, or when a first response renews it. Calls that hold locks under a
/// lease that is gone are notified of the loss after that.
const AUTOPSY: Duration = Duration::from_millis(300);

/// Number of parts of a renewal's time: after one part without a response, the next endpoint is tried too.
const RENEWAL_PARTS: u32 = 3;

/// Longer than any sensible configuration, and short enough for every clock.
const FOREVER: Duration = Duration::from_secs(86_400);

pub(crate) struct Client {
    ring: Arc<Ring>,
    pub(super) means: Means,
    scout: Arc<Scout>,
    pub(crate) reach: Arc<Reach>,
    pub(crate) renewals: Renewals,
    /// True while credentials or certificates are refused, and so are renewals of leases.
    pub(crate) denied: Arc<AtomicBool>,
    clock: Arc<dyn Clock>,
    /// etcd runs in this process and responds without a wait.
    pub(crate) answers_at_once: bool,
    /// A read of a key that never exists, to find out whether etcd responds, and its revision.
    inquiry: Txn,
}

impl Client {
    /// Reads the configuration, without opening connections.
    pub(crate) fn new(config: &Config, clock: Arc<dyn Clock>) -> Result<Arc<Self>, String> {
        config.check()?;
        let means = Means::new(config, clock.clone());
        let targets = means.terms.targets.iter().cloned();
        let endpoints = targets.map(|target| Endpoint::new(target, true, &means));
        let ring = Arc::<Ring>::default();
        ring.replace(endpoints.collect(), means.anywhere());
        let read = Op::Get { key: config.prefix.as_str().into(), values: false };
        let scout = Scout::new(Arc::clone(&ring), means.clone(), config.follow_members);
        Ok(Arc::new(Self {
            ring,
            scout: Arc::new(scout),
            reach: Arc::clone(&means.clusters.reach),
            answers_at_once: config.connector.as_ref().is_some_and(|it| it.is_at_hand),
            means,
            renewals: Renewals::new(clock.clone()),
            denied: Arc::default(),
            clock,
            inquiry: Txn { then: vec![read], ..Txn::default() },
        }))
    }

    /// Makes one exchange, trying one endpoint after another until one is reached. An unknown outcome is returned at once, and the next
    /// exchange begins at another endpoint. Only reads and renewals are resent here (rules P8, P32).
    pub(crate) async fn exchange(self: &Arc<Self>, request: Request) -> Result<Response, Failure> {
        let is_put = |op: &Op| matches!(op, Op::Put { .. });
        if matches!(&request, Request::Txn(txn) if txn.then.iter().any(is_put)) {
            self.means.clusters.acquires()?; // this says nothing about etcd's reach
        }
        let sent = self.reach.begin(&request);
        self.conclude(request, sent).await
    }

    /// Completes an exchange that has begun.
    async fn conclude(&self, request: Request, sent: Sent) -> Result<Response, Failure> {
        let mut result = self.carry_out(request, sent).await;
        self.reach.end(sent, &mut result);
        result
    }

    async fn carry_out(&self, request: Request, sent: Sent) -> Result<Response, Failure> {
        match request {
            Request::Grant(ttl_secs) => self.grant(ttl_secs).await,
            Request::KeepAlive { lease, timeout } => {
                self.means.terms.keyring.mind_end();
                let kept = self.keep_alive(lease, timeout, sent).await;
                self.note_denial(&kept);
                kept
            }
            Request::Revoke(lease) => self.revoke(lease).await,
            Request::List(lease) => {
                let list = |connection| keys_under(connection, lease);
                self.in_turn(Effect::None, |_| false, list).await
            }
            Request::Txn(txn) if txn.only_reads() => self.read(&txn, sent).await,
            Request::Txn(txn) => self.write(&txn).await,
        }
    }

    /// Checks whether etcd responds, without changing anything.
    pub(crate) async fn inquire(self: &Arc<Self>) {
        let _ = self.exchange(Request::Txn(self.inquiry.clone())).await; // the result is recorded, whatever it is
    }

    /// Probes etcd when that is due, and wakes the engine when there is news for the core.
    pub(crate) async fn mind(client: Weak<Self>, wake: impl Fn() -> bool) {
        loop {
            let Some(this) = client.upgrade() else { return };
            let inquiry = Request::Txn(this.inquiry.clone());
            let (probe, due, has_news) = this.reach.probe(&inquiry);
            if has_news {
                wake();
            }
            let (clock, changed) = (this.clock.clone(), Arc::clone(&this.reach.changed));
            if let Some(sent) = probe {
                // Another probe may be due before this one's response.
                tokio::spawn(async move { this.conclude(inquiry, sent).await });
            } else {
                drop(this);
            }
            tokio::select! {
                () = until(&*clock, due) => {}
                () = changed.notified() => {}
            }
        }
    }

    /// Creates a client for the user, over all endpoints. Its tasks run on the runtime on which this is awaited.
    #[cfg(feature = "etcd-client")]
    pub(crate) async fn for_user(&self) -> Result<etcd_client::Client, Failure> {
        let name = self.reach.name.clone();
        self.scout.begin().await;
        self.means.clusters.acquires()?;
        let mut failure = Failure::Unavailable(all(Vec::new()));
        let terms = self.means.terms.current().await;
        let terms = terms.map_err(|message| Failure::Unavailable(named(&name, message)))?;
        // With credentials, connecting sends a request, for which a dead endpoint may be picked (rule P32).
        let limit = self.means.connect_timeout;
        let mut round = self.ring.round();
        for _ in 0..round.len() {
            let targets: Vec<_> = round.iter().map(|it| it.target.clone()).collect();
            let connect = terms.connect_to_any(&targets);
            failure = match by(&*self.clock, self.clock.now() + limit, pin!(connect)).await {
                Some(Ok(client)) => return Ok(client),
                Some(Err(error)) => unopened(&name, targets[0].url().is_some(), &error),
                None => Failure::Unavailable(silence(&name, limit)),
            };
            round.rotate_left(1);
        }
        Err(failure)
    }

    /// Connects to the first reachable endpoint, for a stream.
    pub(super) async fn connect(&self) -> Result<Connection, Failure> {
        self.scout.begin().await;
        self.in_turn(Effect::None, |_| false, async |connection| Ok(connection)).await
    }

    /// Returns the cause for refusing a call whose time was over before an exchange had failed.
    pub(crate) fn silence(&self) -> Cause {
        named(&self.reach.name, "no response in time".into())
    }

    async fn grant(&self, ttl_secs: i64) -> Result<Response, Failure> {
        self.scout.begin().await;
        self.means.clusters.acquires()?;
        let grant = |connection: Connection| async move {
            let answer = connection.client.lease_client().grant(ttl_secs, None).await?;
            match u64::try_from(answer.ttl()) {
                Ok(ttl @ 1..) if answer.id() != 0 => Ok((answer.id(), Duration::from_secs(ttl))),
                _ => Err(malformed()),
            }
        };
        let (lease, ttl) = self.in_turn(Effect::Once, |_| false, grant).await?;
        tracing::debug!(parent: None, lease = format_args!("{lease:x}"), ?ttl, "etcd has granted a lease");
        self.renewals.keep(lease, ttl, None);
        Ok(Response::Granted { lease, ttl })
    }

    async fn revoke(&self, lease: LeaseId) -> Result<Response, Failure> {
        self.renewals.mark(lease, End::Asked);
        tracing::debug!(parent: None, lease = format_args!("{lease:x}"), "revoking a lease");
        let revoke = |connection: Connection| async move {
            connection.client.lease_client().revoke(lease).await?;
            Ok(Response::Revoked)
        };
        let revoked = self.in_turn(Effect::Once, |_| false, revoke).await;
        match revoked {
            Ok(_) | Err(Failure::Refused(Refusal::LeaseNotFound, _)) => {
                self.renewals.forget(lease);
                Ok(Response::Revoked)
            }
            Err(Failure::Refused(..)) => {
                self.renewals.mark(lease, End::Refused);
                revoked
            }
            other => other,
        }
    }

    async fn write(&self, txn: &Txn) -> Result<Response, Failure> {
        let write = |connection| send(connection, txn);
        let answered = self.in_turn(Effect::Once, |_| false, write).await;
        if let Err(Failure::Refused(_, cause)) = &answered {
            self.reach.denied(txn, cause);
        }
        Ok(Response::Txn(answered?))
    }

    /// Reads. A linearizable read can be stale after a member was paused (rule P20).
    async fn read(&self, txn: &Txn, sent: Sent) -> Result<Response, Failure> {
        let is_stale = |answer: &TxnAnswer| sent.is_ahead_of(answer.revision);
        let answer = self.in_turn(Effect::None, is_stale, |connection| send(connection, txn)).await;
        Ok(Response::Txn(answer?))
    }

    pub(crate) async fn page(
        &self,
        from: &[u8],
        end: &[u8],
        at: Option<i64>,
    ) -> Result<Page, Failure> {
        self.scout.begin().await;
        let read = |connection| Page::read(connection, from, end, at);
        self.in_turn(Effect::None, |_| false, read).await
    }

    /// Tries one endpoint after another until one responds with a result that is not stale. A request that may be applied at most once is
    /// sent elsewhere only if it was certainly not applied. If all results are stale, the last one is returned: etcd may have been wiped
    /// and count anew (rule P35), which a write has to prove.
    async fn in_turn<T, F>(
        &self,
        effect: Effect,
        is_stale: impl Fn(&T) -> bool,
        call: impl Fn(Connection) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let limit = match effect {
            Effect::None => READ,
            Effect::Once => EXCHANGE,
        };
        let each = self.means.patience().saturating_add(limit);
        let endpoints = self.means.endpoints.load(Ordering::Relaxed);
        let whole = each.saturating_mul(u32::try_from(endpoints).unwrap_or(u32::MAX));
        let deadline = self.clock.now() + whole.min(FOREVER);
        let (mut causes, mut stale, mut asked) = (Vec::new(), None, Vec::new());
        while let Some(endpoint) = self.ring.next(&asked) {
            let generation = endpoint.generation();
            match self.ask(&endpoint, limit, deadline, &call).await {
                Ok(answer) if is_stale(&answer) => {
                    stale = Some(answer);
                    endpoint.lose(generation); // another member behind the same address may not lag
                }
                unknown @ Err(Failure::Unknown(_)) if effect == Effect::Once => {
                    self.move_on(&endpoint);
                    return unknown;
                }
                Err(Failure::Unavailable(cause) | Failure::Unknown(cause)) => {
                    causes.push(passed_over(cause));
                }
                settled => return settled,
            }
            self.move_on(&endpoint);
            asked.push(endpoint);
        }
        stale.ok_or_else(|| unserved(causes))
    }

    /// Sends a request to one endpoint, with `limit` for the request. Connects before `deadline`.
    async fn ask<T, F>(
        &self,
        endpoint: &Arc<Endpoint>,
        limit: Duration,
        deadline: Moment,
        call: impl Fn(Connection) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut anew = false;
        loop {
            let connected = pin!(endpoint.connect());
            let connection = match by(&*self.clock, deadline, connected).await {
                Some(connected) => connected?,
                None => return Err(Failure::Unavailable(silence(&endpoint.name, limit))),
            };
            let now = self.clock.now();
            let left = limit.min(deadline - now);
            let call = pin!(call(connection.clone()));
            let error = match by(&*self.clock, now + left, call).await {
                Some(Ok(answer)) => return Ok(answer),
                Some(Err(error)) => error,
                None => {
                    // A request that lost most of its time while the connection was opened proves nothing against the connection.
                    if left >= limit.mul_f64(0.9) {
                        connection.lose();
                    }
                    return Err(Failure::Unknown(silence(&endpoint.name, limit)));
                }
            };
            // The connection is over, etcd-client's own refresh does not cover the error (open streams, old auth revisions), or the
            // connection has outdated credentials. So connect and authenticate anew, once (rule P33).
            let may_change = self.means.terms.keyring.source.may_change();
            if !anew && wants_another_connection(&error, may_change) {
                anew = true;
                connection.lose();
                continue;
            }
            return Err(connection.failed(&error));
        }
    }

    /// Records whether renewals of leases are refused, by etcd or because of its certificate. An unreachable etcd shows neither.
    fn note_denial(&self, kept: &Result<Response, Failure>) {
        match kept {
            Ok(_) => self.denied.store(false, Ordering::Relaxed),
            Err(Failure::Refused(Refusal::PermissionDenied | Refusal::Other, cause)) => {
                if !self.denied.swap(true, Ordering::Relaxed) {
                    tracing::warn!(parent: None, code = "etcd.renewals_denied", %cause, "leases are not renewed because credentials or a certificate are refused, so their locks will be lost: see `cause`");
                }
            }
            Err(_) => {}
        }
    }

    /// Renews a lease over its own stream, within `timeout`. After each part of that time without a response, and after each failure, one
    /// more endpoint is tried. The endpoints tried before may still respond, and the first response counts (rule P30).
    async fn keep_alive(
        &self,
        lease: LeaseId,
        timeout: Duration,
        sent: Sent,
    ) -> Result<Response, Failure> {
        let deadline = self.clock.now() + timeout;
        let kept = self.renewals.take(lease);
        let mut renewal = Renewal::new(Arc::clone(&self.ring), kept);
        let mut asked = FuturesUnordered::new();
        let mut next_at = deadline;
        loop {
            let now = self.clock.now();
            if now < deadline
                && let Some((endpoint, kept)) = renewal.next()
            {
                asked.push(self.renew_at(endpoint, kept, lease, deadline));
                next_at = now + timeout / RENEWAL_PARTS;
            }
            // At the deadline, all attempts in progress end.
            let answer = match now < deadline && next_at < deadline {
                true => by(&*self.clock, next_at, asked.next()).await,
                false => Some(asked.next().await),
            };
            let (ttl, mut revision, stream) = match answer {
                None => {
                    next_at = deadline;
                    if let Some(endpoint) = renewal.silence() {
                        self.move_on(&endpoint);
                    }
                    continue;
                }
                Some(Some(Ok((Renewed { ttl, revision }, stream)))) => {
                    renewal.answered(&stream);
                    (ttl, revision, Some(stream))
                }
                Some(Some(Err(Failure::Refused(Refusal::LeaseNotFound, _)))) => {
                    (Duration::ZERO, None, None)
                }
                Some(Some(Err(failure))) => {
                    renewal.failures.push(failure);
                    continue;
                }
                Some(None) => return Err(renewal.outcome()),
            };
            // A stream is opened after a connection was lost, and etcd may have been restored meanwhile. The revision shows that now, and
            // not only at the next renewal, so the holders need not wait for that (rule P35). For a lease that is gone, etcd-client does
            // not return the revision, or returns that of a lagging follower. So it cannot distinguish a wipe from a revoked lease.
            if revision.is_none() || ttl.is_zero() {
                let now = self.clock.now();
                let limit = AUTOPSY.min((deadline - now) / 4);
                let read = pin!(self.read(&self.inquiry, sent));
                revision = match by(&*self.clock, now + limit, read).await {
                    Some(Ok(Response::Txn(answer))) => Some(answer.revision),
                    _ => None,
                };
            }
            match ttl.is_zero() {
                true => self.renewals.forget(lease),
                false => {
                    tracing::debug!(parent: None, lease = format_args!("{lease:x}"), ?ttl, "a lease is renewed");
                    self.renewals.keep(lease, ttl, stream);
                }
            }
            return Ok(Response::KeptAlive { ttl, revision, stale: false });
        }
    }

    /// Renews a lease at one endpoint, over the kept stream or a new one, before `deadline`.
    async fn renew_at(
        &self,
        endpoint: Arc<Endpoint>,
        kept: Option<Stream>,
        lease: LeaseId,
        deadline: Moment,
    ) -> Result<(Renewed, Stream), Failure> {
        let limit = deadline - self.clock.now();
        let renewed = match kept {
            Some(mut stream) => {
                let renewed = by(&*self.clock, deadline, pin!(stream.renew(lease))).await;
                match renewed {
                    Some(Ok(renewed)) => Ok((renewed, stream)),
                    // A broken stream says nothing about the lease.
                    Some(Err(error)) => {
                        Err(Failure::Unavailable(stream.connection.failed(&error).cause()))
                    }
                    None => {
                        stream.connection.lose();
                        Err(Failure::Unknown(silence(&endpoint.name, limit)))
                    }
                }
            }
            None => {
                let known = self.renewals.ttl(lease);
                let call = |connection| Stream::open(connection, lease, known);
                self.ask(&endpoint, limit, deadline, call).await
            }
        };
        if let Err(Failure::Unavailable(cause) | Failure::Unknown(cause)) = &renewed {
            passed_over(cause.clone());
            self.move_on(&endpoint);
        }
        renewed
    }

    /// Makes exchanges begin at another endpoint, unless another exchange has already done so.
    pub(super) fn move_on(&self, from: &Arc<Endpoint>) {
        self.ring.move_on(from);
        self.means.look_again();
    }
}

/// Logs why an endpoint did not serve a request, before another one is tried.
fn passed_over(cause: Cause) -> Cause {
    tracing::debug!(parent: None, %cause, "an endpoint does not serve");
    cause
}

/// Effect of a request on etcd.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    None,
    /// May be applied at most once.
    Once,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::BootClock;

    fn client(endpoints: &[&str]) -> Arc<Client> {
        Client::new(&Config::new(endpoints.iter().copied()), Arc::new(BootClock)).unwrap()
    }

    /// An exchange is allocated and moved for each transaction. Its state took 53 kB when futures were passed by value.
    #[test]
    fn exchange_keeps_little_state() {
        let client = client(&["http://a:1"]);
        let size = size_of_val(&client.exchange(Request::Revoke(1)));
        assert!(size <= 8_192, "{size} bytes");
    }

    #[test]
    fn concurrent_failures_move_on_once() {
        let client = client(&["http://a:1", "http://b:1", "http://c:1"]);
        let before = client.ring.round();
        client.move_on(&before[0]);
        client.move_on(&before[0]);
        assert!(Arc::ptr_eq(&client.ring.round()[0], &before[1]));
    }

    #[cfg(feature = "embedded")]
    #[tokio::test]
    async fn list_has_the_keys_of_a_lease_or_says_there_is_none() {
        let client = Client::new(&Config::embedded(), Arc::new(BootClock)).unwrap();
        let Ok(Response::Granted { lease, .. }) = client.exchange(Request::Grant(5)).await else {
            panic!("no lease");
        };
        let put = Op::Put { key: "a".into(), value: Arc::default(), lease };
        let put = Txn { then: vec![put], ..Txn::default() };
        client.exchange(Request::Txn(put)).await.unwrap();
        match client.exchange(Request::List(lease)).await {
            Ok(Response::Listed(Some(keys))) => assert_eq!(keys, [b"a"]),
            other => panic!("{other:?}"),
        }
        let none = client.exchange(Request::List(lease + 1)).await;
        assert!(matches!(none, Err(Failure::Refused(Refusal::LeaseNotFound, _))), "{none:?}");
    }

    #[cfg(feature = "embedded")]
    #[tokio::test]
    async fn slow_read_does_not_delay_a_renewal() {
        use crate::values::Connector;

        let link = etcd_locked_embedded::Etcd::new().link();
        let connected = link.clone();
        let connector = Connector::new("a slow etcd", move |options| {
            let link = connected.clone();
            async move { link.client(Some(options)).await }
        });
        let client = Client::new(&Config::by(connector), Arc::new(BootClock)).unwrap();
        let Ok(Response::Granted { lease, ttl }) = client.exchange(Request::Grant(5)).await else {
            panic!("no lease");
        };
        link.delay(AUTOPSY);
        let renewed = Request::KeepAlive { lease, timeout: Duration::from_secs(30) };
        match client.exchange(renewed).await {
            Ok(Response::KeptAlive { ttl: kept, revision: None, .. }) => assert_eq!(kept, ttl),
            other => panic!("{other:?}"),
        }
    }
}
