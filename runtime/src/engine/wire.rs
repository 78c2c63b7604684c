//! Requests become etcd-client calls, answers and errors become values (rules P6, P8, P30, P32 to P35).

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_client::{
    Client, CompareOp, ConnectOptions, DeleteOptions, Error, GetOptions, KeyValue,
    LeaseKeepAliveStream, LeaseKeeper, PutOptions, SortOrder, SortTarget, TxnOp, TxnOpResponse,
};
use tokio::time::{Instant, timeout, timeout_at};

use super::endpoint::{Class, Connection, Endpoint, all, classify, silence, unopened};
use crate::clock::{Clock, Moment};
use crate::config::Config;
use crate::core::request::{
    Compare, Failure, Kv, LeaseId, Op, OpAnswer, Order, Refusal, Request, Response, Revision, Txn,
    TxnAnswer,
};

/// How long a write may take. etcd itself gives up at 7 s with `request timed out`, which says no more than our own
/// silence: either way the outcome is unknown, and a seal settles it (rule P10). A write proposed to a leader that dies
/// is never answered; the next leader is there within two seconds or so, and callers wait ten.
const EXCHANGE: Duration = Duration::from_secs(3);

/// How long a read may take on one endpoint; it can be resent, so it need not be patient.
const READ: Duration = Duration::from_secs(2);

/// How long opening one endpoint of several may take, so that a black hole does not use up what the others need.
const SHARE: Duration = Duration::from_secs(2);

/// HTTP/2 pings: etcd closes connections that ping more often than every 5 s (rule P33).
const PING: (Duration, Duration) = (Duration::from_secs(6), Duration::from_secs(3));

/// A renewal stream unused for this long has outlived the longest TTL.
const FORGET: Duration = Duration::from_secs(600);

/// Longer than any configuration that makes sense, and short enough for every clock.
const FOREVER: Duration = Duration::from_secs(86_400);

/// Answers may be larger than tonic's 4 MiB: a range over a long queue.
pub(super) const MAX_ANSWER: usize = 64 << 20;

/// The way to etcd; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Wire(Arc<Shared>);

struct Shared {
    endpoints: Vec<Endpoint>,
    /// The endpoint exchanges begin with.
    current: AtomicUsize,
    /// The highest revision a transaction has answered (rule P20).
    highest: AtomicI64,
    renewals: Mutex<HashMap<LeaseId, Renewal>>,
    clock: Arc<dyn Clock>,
    urls: Vec<String>,
    options: ConnectOptions,
    authenticates: bool,
    connect_timeout: Duration,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire")
            .field("endpoints", &self.urls)
            .field("current", &self.current)
            .finish_non_exhaustive()
    }
}

/// A lease's renewal stream, with the connection it runs on.
struct Renewal {
    keeper: LeaseKeeper,
    answers: LeaseKeepAliveStream,
    endpoint: usize,
    connection: Connection,
    used: Moment,
}

impl Wire {
    /// Reads the configuration; opens nothing.
    pub(crate) fn new(config: &Config, clock: Arc<dyn Clock>) -> Result<Self, String> {
        config.check()?;
        let urls = config.urls();
        let share = if urls.len() > 1 {
            config.connect_timeout.min(SHARE)
        } else {
            config.connect_timeout
        };
        let (interval, timeout) = PING;
        let mut options = ConnectOptions::new()
            .with_keep_alive(interval, timeout)
            .with_keep_alive_while_idle(true)
            .with_require_leader(true)
            .with_auto_token_refresh(true)
            .with_connect_timeout(share);
        if let Some((name, password)) = &config.user {
            options = options.with_user(name, password);
        }
        #[cfg(feature = "tls")]
        if urls.iter().any(|url| url.starts_with("https://")) {
            options = options.with_tls(config.tls.clone().unwrap_or_default().options());
        }
        let endpoints: Vec<_> = urls
            .iter()
            .map(|url| {
                Endpoint::new(
                    url.clone(),
                    options.clone(),
                    config.user.is_some(),
                    share,
                    Arc::clone(&clock),
                )
            })
            .collect();
        // Processes begin with different endpoints, or the first one listed would carry the whole fleet.
        let first = clock.now().since_boot().subsec_nanos() as usize % endpoints.len().max(1);
        Ok(Self(Arc::new(Shared {
            endpoints,
            current: AtomicUsize::new(first),
            highest: AtomicI64::new(0),
            renewals: Mutex::default(),
            clock,
            urls,
            options,
            authenticates: config.user.is_some(),
            connect_timeout: config.connect_timeout,
        })))
    }

    /// One exchange: one endpoint after the other while none was reached. An unknown outcome is reported at once and
    /// makes the next exchange go elsewhere; only reads and renewals are resent here (rules P8, P32).
    pub(crate) async fn exchange(&self, request: Request) -> Result<Response, Failure> {
        match request {
            Request::Grant { ttl_secs } => self.grant(ttl_secs).await,
            Request::KeepAlive { lease, timeout } => self.keep_alive(lease, timeout).await,
            Request::Revoke { lease } => self.revoke(lease).await,
            Request::Txn(txn) if reads_only(&txn) => self.read(&txn).await,
            Request::Txn(txn) => self.write(&txn).await,
        }
    }

    /// A client of the caller's own over all endpoints; its tasks run on the runtime this is awaited on.
    pub(crate) async fn client(&self) -> Result<Client, Failure> {
        let shared = &self.0;
        let urls = shared.urls.join(",");
        let mut failure = Failure::Unavailable(all(Vec::new()));
        // With credentials, connecting is a call, and etcd-client's balancer may pick a dead endpoint for it (rule
        // P32).
        for _ in self.round() {
            let connect = Client::connect(&shared.urls, Some(shared.options.clone()));
            failure = match timeout(shared.connect_timeout, connect).await {
                Ok(Ok(client)) => return Ok(client),
                Ok(Err(error)) => unopened(&urls, &error),
                Err(_) => Failure::Unavailable(silence(&urls, shared.connect_timeout)),
            };
        }
        Err(failure)
    }

    /// The first endpoint that can be reached, for a stream; with its index for [`abandon`](Self::abandon).
    pub(super) async fn connect(&self) -> Result<(usize, Connection), Failure> {
        let mut causes = Vec::new();
        for endpoint in self.round() {
            match self.0.endpoints[endpoint].connect().await {
                Ok(connection) => return Ok((endpoint, connection)),
                Err(Failure::Unavailable(cause)) => {
                    self.move_on(endpoint);
                    causes.push(cause);
                }
                Err(failure) => return Err(failure),
            }
        }
        Err(Failure::Unavailable(all(causes)))
    }

    /// This connection is no good: the next exchange goes elsewhere, and the next one here over a new connection.
    pub(super) fn abandon(&self, endpoint: usize, connection: &Connection) {
        self.0.endpoints[endpoint].lose(connection);
        self.move_on(endpoint);
    }

    /// Completes once this connection has been given up, by whomever.
    pub(super) async fn lost(&self, endpoint: usize, connection: &Connection) {
        self.0.endpoints[endpoint].lost(connection).await;
    }

    /// The next exchange here authenticates anew, if there is a user.
    pub(super) fn authenticate(&self, endpoint: usize, connection: &Connection) {
        if self.authenticates() {
            self.0.endpoints[endpoint].lose(connection);
        }
    }

    /// Whether there is a user, and hence a token that can expire.
    pub(super) fn authenticates(&self) -> bool {
        self.0.authenticates
    }

    async fn grant(&self, ttl_secs: i64) -> Result<Response, Failure> {
        self.once_applied(|mut connection: Connection| async move {
            let answer = connection.client.lease_grant(ttl_secs, None).await?;
            match u64::try_from(answer.ttl()) {
                Ok(ttl @ 1..) if answer.id() != 0 => Ok(Response::Granted {
                    lease: answer.id(),
                    ttl: Duration::from_secs(ttl),
                }),
                _ => Err(malformed()),
            }
        })
        .await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<Response, Failure> {
        self.renewals().remove(&lease);
        let revoked = self
            .once_applied(|mut connection: Connection| async move {
                connection.client.lease_revoke(lease).await?;
                Ok(Response::Revoked)
            })
            .await;
        match revoked {
            Err(Failure::Refused {
                kind: Refusal::LeaseNotFound,
                ..
            }) => Ok(Response::Revoked),
            other => other,
        }
    }

    async fn write(&self, txn: &Txn) -> Result<Response, Failure> {
        let answer = self
            .once_applied(|connection| send(connection, txn))
            .await?;
        self.0.highest.fetch_max(answer.revision, Ordering::Relaxed);
        Ok(Response::Txn(answer))
    }

    /// A read has no outcome to be unknown, so every endpoint is asked until one answers, and answers as new as what
    /// is known already: a linearizable read can be stale after a member was paused (rule P20). If all are older, the
    /// newest of them.
    async fn read(&self, txn: &Txn) -> Result<Response, Failure> {
        let known = self.0.highest.load(Ordering::Relaxed);
        let deadline = self.whole(READ);
        let mut causes = Vec::new();
        let mut stale: Option<TxnAnswer> = None;
        for endpoint in self.round() {
            let call = |connection| send(connection, txn);
            match self.ask(endpoint, READ, deadline, call).await {
                Ok(answer) if answer.revision >= known => {
                    self.0.highest.fetch_max(answer.revision, Ordering::Relaxed);
                    return Ok(Response::Txn(answer));
                }
                Ok(answer) => {
                    if stale.as_ref().is_none_or(|s| s.revision < answer.revision) {
                        stale = Some(answer);
                    }
                }
                Err(Failure::Unavailable(cause) | Failure::Unknown(cause)) => causes.push(cause),
                Err(refused) => return Err(refused),
            }
            self.move_on(endpoint);
        }
        match stale {
            Some(answer) => {
                if causes.is_empty() {
                    // All of them agree: etcd was wiped and counts anew (rule P35), which is for the core to judge.
                    self.0.highest.store(answer.revision, Ordering::Relaxed);
                }
                Ok(Response::Txn(answer))
            }
            None => Err(Failure::Unavailable(all(causes))),
        }
    }

    /// Sends what may be applied at most once: elsewhere only if it was certainly not applied here.
    async fn once_applied<T, F>(&self, call: impl Fn(Connection) -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let deadline = self.whole(EXCHANGE);
        let mut causes = Vec::new();
        for endpoint in self.round() {
            match self.ask(endpoint, EXCHANGE, deadline, &call).await {
                Err(Failure::Unavailable(cause)) => causes.push(cause),
                Err(Failure::Unknown(cause)) => {
                    self.move_on(endpoint);
                    return Err(Failure::Unknown(cause));
                }
                settled => return settled,
            }
            self.move_on(endpoint);
        }
        Err(Failure::Unavailable(all(causes)))
    }

    /// Asks one endpoint; the call may take `limit`, connecting and the call together not beyond `deadline`.
    async fn ask<T, F>(
        &self,
        endpoint: usize,
        limit: Duration,
        deadline: Instant,
        call: impl Fn(Connection) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let endpoint = &self.0.endpoints[endpoint];
        let mut authenticated = false;
        loop {
            let connection = match timeout_at(deadline, endpoint.connect()).await {
                Ok(connected) => connected?,
                Err(_) => return Err(Failure::Unavailable(endpoint.silence(limit))),
            };
            let end = deadline.min(Instant::now() + limit);
            let error = match timeout_at(end, call(connection.clone())).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => error,
                Err(_) => {
                    endpoint.lose(&connection);
                    return Err(Failure::Unknown(endpoint.silence(limit)));
                }
            };
            if classify(&error) == Class::StaleToken && !authenticated {
                // etcd-client's own refresh does not cover it (open streams, old auth revisions): authenticate anew,
                // once (rule P33).
                authenticated = true;
                endpoint.lose(&connection);
                continue;
            }
            return Err(endpoint.failed(&connection, &error));
        }
    }

    /// Renews a lease over a stream of its own (rule P30), all of it within `limit`.
    async fn keep_alive(&self, lease: LeaseId, limit: Duration) -> Result<Response, Failure> {
        let deadline = Instant::now() + limit;
        let open = self.renewals().remove(&lease);
        // A connection that another exchange has given up is not waited for again.
        if let Some(mut renewal) = open
            && let endpoint = &self.0.endpoints[renewal.endpoint]
            && !endpoint.is_lost(&renewal.connection)
        {
            match timeout_at(deadline, renewal.renew(lease)).await {
                Ok(Ok(ttl)) => return Ok(self.kept(lease, ttl, renewal)),
                Ok(Err(error)) => {
                    // A broken stream says nothing about the lease.
                    let failure = endpoint.failed(&renewal.connection, &error);
                    tracing::debug!(?failure, "renewal stream broke");
                    self.move_on(renewal.endpoint);
                }
                Err(_) => {
                    self.abandon(renewal.endpoint, &renewal.connection);
                    return Err(Failure::Unknown(endpoint.silence(limit)));
                }
            }
        }
        let mut causes = Vec::new();
        let mut sent = false;
        for endpoint in self.round() {
            let call = |connection| Renewal::open(connection, endpoint, lease, self.0.clock.now());
            match self.ask(endpoint, limit, deadline, call).await {
                Ok((ttl, renewal)) => return Ok(self.kept(lease, ttl, renewal)),
                Err(Failure::Refused {
                    kind: Refusal::LeaseNotFound,
                    ..
                }) => {
                    return Ok(Response::KeptAlive {
                        ttl: Duration::ZERO,
                    });
                }
                Err(Failure::Unavailable(cause)) => causes.push(cause),
                Err(Failure::Unknown(cause)) => {
                    sent = true;
                    causes.push(cause);
                }
                Err(refused) => return Err(refused),
            }
            self.move_on(endpoint);
            if Instant::now() >= deadline {
                break;
            }
        }
        Err(match sent {
            true => Failure::Unknown(all(causes)),
            false => Failure::Unavailable(all(causes)),
        })
    }

    /// Puts the stream back for the next renewal, unless the lease is gone.
    fn kept(&self, lease: LeaseId, ttl: Duration, mut renewal: Renewal) -> Response {
        if !ttl.is_zero() {
            let now = self.0.clock.now();
            renewal.used = now;
            let mut renewals = self.renewals();
            // Leases that were lost are not revoked, so nothing else drops their streams.
            renewals.retain(|_, other| now - other.used < FORGET);
            renewals.insert(lease, renewal);
        }
        Response::KeptAlive { ttl }
    }

    fn renewals(&self) -> MutexGuard<'_, HashMap<LeaseId, Renewal>> {
        self.0
            .renewals
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// All endpoints, the current one first.
    fn round(&self) -> impl Iterator<Item = usize> + use<> {
        let count = self.0.endpoints.len();
        let first = self.0.current.load(Ordering::Relaxed);
        (first..first + count).map(move |i| i % count)
    }

    /// Exchanges begin elsewhere, unless another one has already seen to that.
    fn move_on(&self, from: usize) {
        let next = (from + 1) % self.0.endpoints.len();
        let _ = self
            .0
            .current
            .compare_exchange(from, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// When a round of all endpoints must have ended.
    fn whole(&self, limit: Duration) -> Instant {
        let count = u32::try_from(self.0.endpoints.len()).unwrap_or(u32::MAX);
        let each = self.0.connect_timeout.saturating_add(limit);
        Instant::now() + each.saturating_mul(count).min(FOREVER)
    }
}

impl Renewal {
    async fn open(
        mut connection: Connection,
        endpoint: usize,
        lease: LeaseId,
        now: Moment,
    ) -> Result<(Duration, Self), Error> {
        let (keeper, answers) = connection.client.lease_keep_alive(lease).await?;
        let mut renewal = Self {
            keeper,
            answers,
            endpoint,
            connection,
            used: now,
        };
        // etcd-client keeps the first answer's TTL to itself. One more round trip per stream, over the stream just
        // opened, is cheaper than a call of another kind, and right even if the TTL is not what was granted.
        let ttl = renewal.renew(lease).await?;
        Ok((ttl, renewal))
    }

    /// The TTL the lease has now; zero: there is no such lease.
    async fn renew(&mut self, lease: LeaseId) -> Result<Duration, Error> {
        self.keeper.keep_alive().await?;
        match self.answers.message().await? {
            // An unanswered request ends the stream, so this answers the request just sent.
            Some(answer) if answer.id() == lease => Ok(Duration::from_secs(
                u64::try_from(answer.ttl()).unwrap_or(0),
            )),
            Some(_) => Err(malformed()),
            None => Err(Error::LeaseKeepAliveError("stream ended".into())),
        }
    }
}

/// An answer that etcd does not give; its outcome is unknown like that of any other answer that cannot be read.
fn malformed() -> Error {
    Error::Internal("malformed answer".into())
}

fn reads_only(txn: &Txn) -> bool {
    txn.then
        .iter()
        .chain(&txn.or_else)
        .all(|op| matches!(op, Op::Get { .. } | Op::Range { .. }))
}

async fn send(connection: Connection, txn: &Txn) -> Result<TxnAnswer, Error> {
    let request = etcd_client::Txn::new()
        .when(txn.when.iter().map(compare).collect::<Vec<_>>())
        .and_then(txn.then.iter().map(operation).collect::<Vec<_>>())
        .or_else(txn.or_else.iter().map(operation).collect::<Vec<_>>());
    let mut kv = connection
        .client
        .kv_client()
        .max_decoding_message_size(MAX_ANSWER);
    let answer = kv.txn(request).await?;
    let revision = answer.header().ok_or_else(malformed)?.revision();
    let succeeded = answer.succeeded();
    let asked = if succeeded { &txn.then } else { &txn.or_else };
    // etcd-client panics on an operation's answer without content; that must not take the engine's thread along.
    let answers =
        catch_unwind(AssertUnwindSafe(|| answer.op_responses())).map_err(|_| malformed())?;
    if answers.len() != asked.len() {
        return Err(malformed());
    }
    let answers = asked
        .iter()
        .zip(answers)
        .map(|(op, answer)| op_answer(op, answer))
        .collect::<Option<_>>()
        .ok_or_else(malformed)?;
    Ok(TxnAnswer {
        revision,
        succeeded,
        answers,
    })
}

fn compare(compare: &Compare) -> etcd_client::Compare {
    match compare {
        Compare::CreateRevision { key, revision } => {
            etcd_client::Compare::create_revision(&**key, CompareOp::Equal, *revision)
        }
        Compare::ModRevision { key, revision } => {
            etcd_client::Compare::mod_revision(&**key, CompareOp::Equal, *revision)
        }
        // Over a range, etcd wants every key of it to fit, and no key has create revision 0.
        Compare::NoneUnder { prefix } => {
            etcd_client::Compare::create_revision(&**prefix, CompareOp::Equal, 0).with_prefix()
        }
    }
}

fn operation(op: &Op) -> TxnOp {
    match op {
        // The previous key-value tells whether the key is new, hence its create revision (rule P8).
        Op::Put { key, value, lease } => TxnOp::put(
            &**key,
            &**value,
            Some(PutOptions::new().with_lease(*lease).with_prev_key()),
        ),
        Op::Get { key } => TxnOp::get(&**key, Some(GetOptions::new().with_keys_only())),
        Op::Range {
            prefix,
            limit,
            values,
            order,
            older_than,
        } => TxnOp::get(&**prefix, Some(range(*limit, *values, *order, *older_than))),
        Op::Delete { key } => TxnOp::delete(&**key, Some(DeleteOptions::new())),
    }
}

fn range(limit: i64, values: bool, order: Order, older_than: Option<Revision>) -> GetOptions {
    let order = match order {
        Order::OldestFirst => SortOrder::Ascend,
        Order::NewestFirst => SortOrder::Descend,
    };
    let mut options = GetOptions::new()
        .with_prefix()
        .with_limit(limit)
        .with_sort(SortTarget::Create, order);
    if !values {
        options = options.with_keys_only();
    }
    if let Some(revision) = older_than {
        // 0 would mean no bound; nothing has create revision 1 (an empty store's revision).
        options = options.with_max_create_revision((revision - 1).max(1));
    }
    options
}

fn op_answer(op: &Op, answer: TxnOpResponse) -> Option<OpAnswer> {
    match (op, answer) {
        (Op::Put { .. }, TxnOpResponse::Put(mut put)) => Some(OpAnswer::Put {
            previous: put.take_prev_key().map(key_value),
        }),
        (Op::Get { .. } | Op::Range { .. }, TxnOpResponse::Get(mut get)) => Some(OpAnswer::Found {
            kvs: get.take_kvs().into_iter().map(key_value).collect(),
        }),
        (Op::Delete { .. }, TxnOpResponse::Delete(_)) => Some(OpAnswer::Deleted),
        _ => None,
    }
}

/// etcd's key-value as the core knows it.
pub(super) fn key_value(kv: KeyValue) -> Kv {
    let (create_revision, mod_revision, lease) =
        (kv.create_revision(), kv.mod_revision(), kv.lease());
    let (key, value) = kv.into_key_value();
    Kv {
        key,
        value,
        create_revision,
        mod_revision,
        lease,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::BootClock;

    fn wire(endpoints: &[&str]) -> Wire {
        Wire::new(&Config::new(endpoints.iter().copied()), Arc::new(BootClock)).unwrap()
    }

    fn txn(then: Vec<Op>) -> Txn {
        Txn {
            then,
            ..Txn::default()
        }
    }

    #[test]
    fn only_reads_are_reads() {
        let get = || Op::Get { key: "a".into() };
        let delete = || Op::Delete { key: "a".into() };
        assert!(reads_only(&txn(vec![get()])));
        assert!(!reads_only(&txn(vec![get(), delete()])));
        let or_else = Txn {
            or_else: vec![delete()],
            ..txn(vec![get()])
        };
        assert!(!reads_only(&or_else));
    }

    #[test]
    fn concurrent_failures_move_on_once() {
        let wire = wire(&["http://a:1", "http://b:1", "http://c:1"]);
        let first = wire.round().next().unwrap();
        wire.move_on(first);
        wire.move_on(first);
        let order: Vec<_> = wire.round().collect();
        assert_eq!(order, [(first + 1) % 3, (first + 2) % 3, first]);
    }

    #[tokio::test]
    async fn nothing_reached_is_unavailable_and_names_everything() {
        let wire = wire(&["http://127.0.0.1:1", "127.0.0.1:2"]);
        for request in [
            Request::Txn(txn(vec![Op::Delete { key: "a".into() }])),
            Request::Txn(txn(vec![Op::Get { key: "a".into() }])),
            Request::Grant { ttl_secs: 5 },
            Request::Revoke { lease: 1 },
            Request::KeepAlive {
                lease: 1,
                timeout: Duration::from_secs(1),
            },
        ] {
            let Err(Failure::Unavailable(cause)) = wire.exchange(request).await else {
                panic!("not unavailable");
            };
            let message = cause.to_string();
            assert!(message.contains("http://127.0.0.1:1: tcp"), "{message}");
            assert!(message.contains("http://127.0.0.1:2: tcp"), "{message}");
        }
    }
}
