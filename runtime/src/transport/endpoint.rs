//! Endpoint of etcd: its client, opened on the first use (rules P32, P33).

use std::mem;
use std::pin::pin;
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use etcd_client::Client;
use etcd_locked_core::{Failure, Refusal};
use tokio::sync::{Notify, watch};

use super::cluster::Clusters;
use super::errors::{
    Class, NO_LEADER, Suspicion, bad_certificate, classify, describe, misconfigured, named,
    refused, silence, spoken, suspicion, unopened,
};
use super::reach::Reach;
use super::scheme::speaks;
use super::target::{Target, Terms};
use crate::clock::{Clock, by};
use crate::metrics;
use crate::mutex::lock;
use crate::values::Config;

/// Time limit for finding out which scheme a port speaks after it has ended a connection.
const SCHEME: Duration = Duration::from_millis(500);

/// Longest time for opening one of several endpoints, so that an unreachable one leaves time for the others.
const LONGEST: Duration = Duration::from_secs(2);

/// Shortest time for opening an endpoint: for a login over a slow network, and the requests that prove a connection.
const SHORTEST: Duration = Duration::from_secs(1);

/// etcd-client's own balancing fails every request for which it picks a dead endpoint (26 % with one of three dead, rule P32), so each
/// endpoint has its own client.
pub(super) struct Endpoint {
    pub(super) target: Target,
    /// Name in errors.
    pub(super) name: String,
    /// True if it is in the configuration, and not only in the cluster's member list.
    pub(super) configured: bool,
    /// True once it has responded, which shows that it is configured correctly.
    served: AtomicBool,
    /// The member to which its last connection led, and the leader that this member named; 0 if unknown.
    member_and_leader: Mutex<(u64, u64)>,
    /// Connections up to this generation are not used again.
    lost: watch::Sender<u64>,
    last: Mutex<Option<Opening>>,
    means: Means,
}

/// Settings and state that all endpoints of a client share.
#[derive(Clone)]
pub(super) struct Means {
    pub(super) terms: Terms,
    /// Clusters by endpoint.
    pub(super) clusters: Arc<Clusters>,
    pub(super) connect_timeout: Duration,
    /// Current number of endpoints.
    pub(super) endpoints: Arc<AtomicUsize>,
    /// True if the member list is followed, or an endpoint is a name with addresses.
    pub(super) may_change: bool,
    /// Wakes the scout: an endpoint has failed, or the clusters must be checked.
    pub(super) wake: Arc<Notify>,
    pub(super) clock: Arc<dyn Clock>,
}

impl Means {
    pub(super) fn new(config: &Config, clock: Arc<dyn Clock>) -> Self {
        let targets = Target::all(config);
        let (endpoints, names) = (targets.len(), Vec::from_iter(targets.iter().map(Target::name)));
        let reach = Reach::new(clock.clone(), names.join(","), config.connect_timeout);
        let wake = Arc::<Notify>::default();
        Self {
            terms: Terms::new(config, share(config.connect_timeout, endpoints), clock.clone()),
            clusters: Arc::new(Clusters::new(Arc::new(reach), wake.clone())),
            connect_timeout: config.connect_timeout,
            endpoints: Arc::new(AtomicUsize::new(endpoints)),
            may_change: config.follow_members || targets.iter().any(|it| it.host().is_some()),
            wake,
            clock,
        }
    }

    /// Makes the scout check for new members, or new addresses of a name, after an endpoint or its connection has failed.
    pub(super) fn look_again(&self) {
        if self.may_change {
            self.wake.notify_one();
        }
    }

    /// Returns a number to choose an endpoint by while the leader is unknown.
    pub(super) fn anywhere(&self) -> usize {
        self.clock.now().since_boot().subsec_nanos() as usize
    }

    /// Returns the time limit for opening one endpoint.
    pub(super) fn patience(&self) -> Duration {
        share(self.connect_timeout, self.endpoints.load(Ordering::Relaxed))
    }
}

/// Returns each endpoint's share of the connect time-out. Because of [`SHORTEST`], the sum may exceed that.
fn share(connect_timeout: Duration, endpoints: usize) -> Duration {
    match u32::try_from(endpoints).unwrap_or(u32::MAX) {
        0 | 1 => connect_timeout,
        several => (connect_timeout / several).clamp(SHORTEST.min(connect_timeout), LONGEST),
    }
}

/// A connection that is being opened, or was. The task that opens it continues when no exchange waits for it any more: if one renewal's
/// time was too short, the next one finds it open.
#[derive(Clone)]
struct Opening {
    /// `None` until it is known.
    outcome: watch::Receiver<Option<Result<Arc<Client>, Failure>>>,
    generation: u64,
}

/// Client of an endpoint. Its clones share the connection.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) client: Arc<Client>,
    pub(super) generation: u64,
}

impl Endpoint {
    /// Creates an endpoint. `configured` is true if it is in the configuration, and not only in the cluster's member list.
    pub(super) fn new(target: Target, configured: bool, means: &Means) -> Arc<Self> {
        Arc::new(Self {
            name: target.name(),
            target,
            configured,
            served: AtomicBool::new(false),
            member_and_leader: Mutex::default(),
            lost: watch::Sender::new(0),
            last: Mutex::default(),
            means: means.clone(),
        })
    }

    /// Returns the endpoint's connection, which is opened if necessary.
    ///
    /// A new connection is proven by one harmless request before it is used. So a dead, frozen or wrong endpoint is discovered before
    /// anything was sent. Otherwise its first transaction would have an unknown outcome and cost a barrier (rule P10). All exchanges that
    /// wait for the same attempt share its outcome.
    pub(super) async fn connect(self: &Arc<Self>) -> Result<Connection, Failure> {
        let Opening { mut outcome, generation } = self.opening();
        let outcome = outcome.wait_for(Option::is_some).await.ok().and_then(|it| it.clone());
        // The task may have ended without a result.
        let broken = || named(&self.name, "opening a connection was interrupted".into());
        let client = outcome.ok_or_else(|| Failure::Unavailable(broken()))??;
        Ok(Connection { endpoint: Arc::clone(self), client, generation })
    }

    /// Returns true if a connection is open and proven.
    pub(super) fn is_connected(&self) -> bool {
        lock(&self.last).as_ref().is_some_and(Opening::is_proven)
    }

    /// Returns the ids of the member to which its last connection led, and of the leader. Some versions name that to root only: then 0.
    pub(super) fn member_and_leader(&self) -> (u64, u64) {
        *lock(&self.member_and_leader)
    }

    /// Makes streams leave the endpoint, which is no longer used.
    pub(super) fn retire(&self) {
        self.lost.send_replace(u64::MAX);
        self.means.clusters.forget(&self.name);
    }

    fn retired(&self) -> Failure {
        Failure::Unavailable(named(&self.name, "no longer an endpoint".into()))
    }

    /// Returns the attempt to wait for: the last one, unless it failed.
    fn opening(self: &Arc<Self>) -> Opening {
        let mut slot = lock(&self.last);
        match &*slot {
            Some(last) if last.is_of_use() => last.clone(),
            last => {
                let generation = last.as_ref().map_or(1, |last| last.generation + 1);
                slot.insert(self.begin(generation)).clone()
            }
        }
    }

    fn begin(self: &Arc<Self>, generation: u64) -> Opening {
        let (telling, outcome) = watch::channel(None);
        let endpoint = Arc::clone(self);
        tokio::spawn(async move { telling.send_replace(Some(endpoint.open(generation).await)) });
        Opening { outcome, generation }
    }

    /// Returns the generation of its last connection, open or not; 0 if there was none.
    pub(super) fn generation(&self) -> u64 {
        lock(&self.last).as_ref().map_or(0, |last| last.generation)
    }

    /// Makes the next exchange use a new connection, if the last one has this generation and is open. Exchanges on that continue.
    pub(super) fn reopen(self: &Arc<Self>, generation: u64) {
        let mut slot = lock(&self.last);
        let last = slot.as_ref().filter(|last| last.generation == generation && last.is_proven());
        if last.is_some() {
            *slot = Some(self.begin(generation + 1));
        }
    }

    /// Stops using its connections up to this generation. They close when the exchanges on them have ended.
    pub(super) fn lose(&self, generation: u64) {
        if let Some(last) = lock(&self.last).as_mut().filter(|it| it.generation <= generation) {
            last.outcome = watch::channel(None).1; // without its client
        }
        self.lost.send_if_modified(|lost| mem::replace(lost, generation.max(*lost)) < generation);
    }

    /// Returns true if an exchange has found connections up to this generation unusable.
    pub(super) fn has_lost(&self, generation: u64) -> bool {
        *self.lost.borrow() >= generation
    }

    async fn open(self: Arc<Self>, generation: u64) -> Result<Arc<Client>, Failure> {
        let patience = self.means.patience();
        let deadline = self.means.clock.now() + patience;
        let mut lost = self.lost.subscribe();
        let silence = || Failure::Unavailable(silence(&self.name, patience));
        let proven = pin!(self.prove(generation));
        let outcome = tokio::select! {
            proven = by(&*self.means.clock, deadline, proven) => proven.unwrap_or_else(|| Err(silence())),
            _ = lost.wait_for(|it| *it == u64::MAX) => Err(self.retired()),
        };
        let open = outcome.is_ok();
        tracing::debug!(parent: None, endpoint = self.name, number = generation, open, "attempted a connection");
        metrics::tried_connection(&self.name, open);
        outcome
    }

    async fn prove(self: &Arc<Self>, generation: u64) -> Result<Arc<Client>, Failure> {
        let terms = self.means.terms.current().await;
        let terms = terms.map_err(|message| Failure::Unavailable(named(&self.name, message)))?;
        let client = match terms.connect(slice::from_ref(&self.target), true).await {
            Ok(client) => Arc::new(client),
            Err(error) => return Err(self.unopened(&error).await),
        };
        let said = match client.maintenance_client().status().await {
            // etcd 3.4 and 3.5.30 show the status only to root, and the members to every user.
            Err(error) if matches!(classify(&error), Class::Refused(_)) => {
                let members = client.cluster_client().member_list().await;
                members.map(|mut it| (it.take_header(), String::new(), 0))
            }
            status => status.map(|mut it| (it.take_header(), it.version().to_owned(), it.leader())),
        };
        let (header, version, leader) = match said {
            Ok(said) => said,
            Err(error) => return Err(self.unopened(&error).await),
        };
        if self.has_lost(u64::MAX) {
            return Err(self.retired());
        }
        let member = header.as_ref().map_or(0, |it| it.member_id());
        *lock(&self.member_and_leader) = (member, leader);
        // A server that is not etcd may send no id.
        if let Some(id) = header.map(|it| it.cluster_id()).filter(|id| *id != 0) {
            let clusters = &self.means.clusters;
            let allowed = match self.configured {
                true => clusters.answered(&self.name, id),
                false => clusters.joined(self, id, generation),
            };
            allowed.map_err(Failure::Unavailable)?;
            clusters.meet(&self.name, id, &version);
        }
        self.served.store(true, Ordering::Relaxed);
        self.means.clusters.reach.change(|state, _| state.etcd.connect());
        Ok(client)
    }

    /// Returns the failure of a connection that was not opened. If the endpoint never responded, it may have the wrong scheme. If it did,
    /// the same error means that etcd is restarting.
    async fn unopened(&self, error: &etcd_client::Error) -> Failure {
        let by_url = self.target.url().is_some();
        let failure = unopened(&self.name, by_url, error);
        let tls = match suspicion(&self.name, error).filter(|_| by_url) {
            Some(Suspicion::Certificate) => return bad_certificate(&self.name, error),
            Some(suspicion) if !self.served.load(Ordering::Relaxed) => suspicion == Suspicion::Tls,
            _ => return failure,
        };
        let until = self.means.clock.now() + SCHEME;
        let asked = by(&*self.means.clock, until, pin!(speaks(tls, &self.target.reached()))).await;
        let hint = match (tls, asked.unwrap_or(false)) {
            (true, true) => "; this port speaks TLS: write `https://`",
            (true, false) => return failure,
            (false, true) => "; this port speaks plain HTTP: write `http://`",
            // A server that lacks a client certificate may say so, or only end the connection.
            (false, false) => {
                let message = describe(error) + "; if etcd needs a client certificate, set one";
                return Failure::Unavailable(named(&self.name, message));
            }
        };
        misconfigured(&self.name, error, hint)
    }
}

impl Connection {
    /// Returns the failure of an exchange over this connection.
    pub(super) fn failed(&self, error: &etcd_client::Error) -> Failure {
        let (name, message) = (&self.endpoint.name, describe(error));
        // Another member behind the same address may have a leader.
        if !spoken(error) || message.contains(NO_LEADER) {
            self.lose();
        }
        match classify(error) {
            Class::Unavailable => Failure::Unavailable(named(name, message)),
            Class::Refused(kind) => refused(kind, name, message),
            Class::StaleToken => Failure::Refused(Refusal::Other, named(name, message)),
            Class::Unknown => Failure::Unknown(named(name, message)),
        }
    }

    /// Stops using this connection: the endpoint's next exchange uses another one.
    pub(super) fn lose(&self) {
        self.endpoint.lose(self.generation);
        self.endpoint.means.look_again();
    }

    /// Completes once it is lost.
    pub(super) async fn lost(&self) {
        let mut lost = self.endpoint.lost.subscribe();
        let _ = lost.wait_for(|lost| *lost >= self.generation).await; // cannot fail: the endpoint has the sender
    }
}

impl Opening {
    fn is_proven(&self) -> bool {
        matches!(*self.outcome.borrow(), Some(Ok(_)))
    }

    fn is_of_use(&self) -> bool {
        match &*self.outcome.borrow() {
            Some(outcome) => outcome.is_ok(),
            None => self.outcome.has_changed().is_ok(), // its task is running
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::BootClock;

    fn endpoint(url: String) -> Arc<Endpoint> {
        let config = Config::new([&url]).connect_timeout(Duration::from_millis(50));
        let means = Means::new(&config, Arc::new(BootClock));
        Endpoint::new(Target::of(&url), true, &means)
    }

    #[tokio::test]
    async fn opening_outlives_the_exchange_that_began_it() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = endpoint(format!("http://{}", silent.local_addr().unwrap()));
        // The first exchange ends as soon as its connection exists.
        let _connection = tokio::select! {
            biased;
            accepted = silent.accept() => accepted.unwrap(),
            _ = endpoint.connect() => panic!("it did not wait"),
        };
        assert!(endpoint.connect().await.is_err());
        let another = tokio::time::timeout(Duration::ZERO, silent.accept()).await;
        assert!(another.is_err(), "the second attempt began anew");
    }
}
