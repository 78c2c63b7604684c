//! Endpoint of etcd: its client, opened when first used (rules P32, P33).

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

/// How long to find out which scheme a port speaks that has just ended a connection.
const SCHEME: Duration = Duration::from_millis(500);

/// How long opening one endpoint of several may take, so that a black hole does not use up what the others need.
const LONGEST: Duration = Duration::from_secs(2);

/// How long at least: a login over a long way, and the questions that prove a connection.
const SHORTEST: Duration = Duration::from_secs(1);

/// etcd-client's own balancing fails every call that picks a dead endpoint (26 % with one of three dead, rule P32),
/// so each endpoint has a client of its own.
pub(super) struct Endpoint {
    pub(super) target: Target,
    /// What errors call it.
    pub(super) name: String,
    /// It is in the configuration, and not only in the cluster's member list.
    pub(super) configured: bool,
    /// It has answered before, so it is written as it should be.
    served: AtomicBool,
    /// Connections up to this generation are not used again.
    lost: watch::Sender<u64>,
    last: Mutex<Option<Opening>>,
    means: Means,
}

/// What all endpoints of a client are reached with.
#[derive(Clone)]
pub(super) struct Means {
    pub(super) terms: Terms,
    /// Which cluster answers where.
    pub(super) clusters: Arc<Clusters>,
    pub(super) connect_timeout: Duration,
    /// How many endpoints there are now.
    pub(super) endpoints: Arc<AtomicUsize>,
    /// The member list is followed, or an endpoint is a name with addresses.
    pub(super) may_change: bool,
    /// Wakes the scout: an endpoint has failed, or the clusters are to be looked at.
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

    /// An endpoint or its connection has failed, so the members may be others, or the addresses of a name.
    pub(super) fn look_again(&self) {
        if self.may_change {
            self.wake.notify_one();
        }
    }

    /// Returns a number to choose an endpoint by. Processes begin with different ones, or the first would carry the whole fleet.
    pub(super) fn anywhere(&self) -> usize {
        self.clock.now().since_boot().subsec_nanos() as usize
    }

    /// Returns how long opening one endpoint may take.
    pub(super) fn patience(&self) -> Duration {
        share(self.connect_timeout, self.endpoints.load(Ordering::Relaxed))
    }
}

/// Returns each endpoint's part of the connect time-out. With [`SHORTEST`], their sum may exceed that.
fn share(connect_timeout: Duration, endpoints: usize) -> Duration {
    match u32::try_from(endpoints).unwrap_or(u32::MAX) {
        0 | 1 => connect_timeout,
        several => (connect_timeout / several).clamp(SHORTEST.min(connect_timeout), LONGEST),
    }
}

/// A connection that is being opened, or has been. The task that opens it goes on when no exchange waits any more: what one
/// renewal's short time was not enough for, the next one finds done.
#[derive(Clone)]
struct Opening {
    /// `None` until it is known.
    outcome: watch::Receiver<Option<Result<Arc<Client>, Failure>>>,
    generation: u64,
}

/// An endpoint's client; a clone of it shares the connection.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) client: Arc<Client>,
    pub(super) generation: u64,
}

impl Endpoint {
    /// `configured`: it is in the configuration, and not only in the cluster's member list.
    pub(super) fn new(target: Target, configured: bool, means: &Means) -> Arc<Self> {
        Arc::new(Self {
            name: target.name(),
            target,
            configured,
            served: AtomicBool::new(false),
            lost: watch::Sender::new(0),
            last: Mutex::default(),
            means: means.clone(),
        })
    }

    /// The endpoint's connection, opened if it is not.
    ///
    /// A new connection is proven by one harmless call before it is used, so a dead, frozen or wrong endpoint is
    /// found out while nothing has been sent: without that, its first transaction would have an unknown outcome and
    /// cost a barrier (rule P10). All exchanges that wait for the same attempt share its outcome.
    pub(super) async fn connect(self: &Arc<Self>) -> Result<Connection, Failure> {
        let Opening { mut outcome, generation } = self.opening();
        let outcome = outcome.wait_for(Option::is_some).await.ok().and_then(|it| it.clone());
        // The task may be gone without having said anything.
        let broken = || named(&self.name, "opening a connection was broken off".into());
        let client = outcome.ok_or_else(|| Failure::Unavailable(broken()))??;
        Ok(Connection { endpoint: Arc::clone(self), client, generation })
    }

    /// Whether a connection is open and proven.
    pub(super) fn is_connected(&self) -> bool {
        lock(&self.last).as_ref().is_some_and(Opening::is_proven)
    }

    /// Makes streams leave the endpoint, which is used no more.
    pub(super) fn retire(&self) {
        self.lost.send_replace(u64::MAX);
        self.means.clusters.forget(&self.name);
    }

    fn retired(&self) -> Failure {
        Failure::Unavailable(named(&self.name, "no endpoint any more".into()))
    }

    /// The attempt to wait for: the last one, unless it came to nothing.
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

    /// The generation of its last connection, open or not; 0 if there was none.
    pub(super) fn generation(&self) -> u64 {
        lock(&self.last).as_ref().map_or(0, |last| last.generation)
    }

    /// The next exchange uses a new connection, if the last one is of this generation and open. Exchanges on that go on.
    pub(super) fn reopen(self: &Arc<Self>, generation: u64) {
        let mut slot = lock(&self.last);
        let last = slot.as_ref().filter(|last| last.generation == generation && last.is_proven());
        if last.is_some() {
            *slot = Some(self.begin(generation + 1));
        }
    }

    /// Its connections up to this generation are not used again, and close when the exchanges under way on them have ended.
    pub(super) fn lose(&self, generation: u64) {
        if let Some(last) = lock(&self.last).as_mut().filter(|it| it.generation <= generation) {
            last.outcome = watch::channel(None).1; // without its client
        }
        self.lost.send_if_modified(|lost| mem::replace(lost, generation.max(*lost)) < generation);
    }

    /// Whether an exchange has found the connections up to this generation to be no good.
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
        tracing::debug!(parent: None, endpoint = self.name, number = generation, open, "a connection was tried");
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
            // etcd 3.4 and 3.5.30 show it to root only, and the members to every user.
            Err(error) if matches!(classify(&error), Class::Refused(_)) => {
                let members = client.cluster_client().member_list().await;
                members.map(|mut it| (it.take_header(), String::new()))
            }
            status => status.map(|mut it| (it.take_header(), it.version().to_owned())),
        };
        let (header, version) = match said {
            Ok(said) => said,
            Err(error) => return Err(self.unopened(&error).await),
        };
        if self.has_lost(u64::MAX) {
            return Err(self.retired());
        }
        // What only looks like etcd may have no id.
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

    /// What a connection that was not opened comes to. An endpoint that never served may have the wrong scheme; of one that did, the same
    /// error says that etcd restarts.
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
            (false, true) => "; this port speaks plain http: write `http://`",
            // A server that misses a certificate may say so, or only end the connection.
            (false, false) => {
                let message = describe(error) + "; if etcd wants a client certificate, name one";
                return Failure::Unavailable(named(&self.name, message));
            }
        };
        misconfigured(&self.name, error, hint)
    }
}

impl Connection {
    /// What a failed exchange over this connection comes to.
    pub(super) fn failed(&self, error: &etcd_client::Error) -> Failure {
        let (name, message) = (&self.endpoint.name, describe(error));
        // Behind the same address there may be a member that has a leader.
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

    /// It is no good: the endpoint's next exchange uses another one.
    pub(super) fn lose(&self) {
        self.endpoint.lose(self.generation);
        self.endpoint.means.look_again();
    }

    /// Completes once it is lost.
    pub(super) async fn lost(&self) {
        let mut lost = self.endpoint.lost.subscribe();
        let _ = lost.wait_for(|lost| *lost >= self.generation).await; // fails only without a sender, which is the endpoint's
    }
}

impl Opening {
    fn is_proven(&self) -> bool {
        matches!(*self.outcome.borrow(), Some(Ok(_)))
    }

    fn is_of_use(&self) -> bool {
        match &*self.outcome.borrow() {
            Some(outcome) => outcome.is_ok(),
            None => self.outcome.has_changed().is_ok(), // its task is there
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
        // The first exchange ends as soon as its connection is there.
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
