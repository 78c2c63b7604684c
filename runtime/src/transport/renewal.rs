//! Renewal of leases (rule P30): streams that stay open between renewals, and the choice of endpoints for a renewal.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::vec::IntoIter;

use etcd_client::{Error, LeaseKeepAliveStream, LeaseKeeper};
use etcd_locked_core::{Failure, LeaseId, Revision};

use super::convert::malformed;
use super::endpoint::{Connection, Endpoint};
use super::errors::{all, unserved};
use super::ring::Ring;
use crate::clock::{Clock, Moment};
use crate::mutex::lock;

/// A lease that was not renewed for this time has outlived the longest TTL of a session.
const FORGET: Duration = Duration::from_secs(600);

/// State of leases between their renewals.
pub(crate) struct Renewals {
    /// Renewed leases, one for a thousand contenders. Those that ended stay until a new lease comes, [`FORGET`] later.
    leases: Mutex<HashMap<LeaseId, Lease>>,
    clock: Arc<dyn Clock>,
}

struct Lease {
    /// From etcd's last response.
    ttl: Duration,
    stream: Option<Stream>,
    used: Moment,
    end: End,
}

/// State of a lease's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The lease is renewed.
    Open,
    /// The lease must be revoked, and etcd has not responded.
    Asked,
    /// etcd has refused to revoke it, so it expires by itself.
    Refused,
}

/// A lease's renewal stream, with its connection.
pub(super) struct Stream {
    keeper: LeaseKeeper,
    answers: LeaseKeepAliveStream,
    pub(super) connection: Connection,
}

/// etcd's response to a renewal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Renewed {
    /// The lease's current TTL; zero if the lease does not exist.
    pub(super) ttl: Duration,
    /// The header's revision; `None` if etcd-client does not return it.
    pub(super) revision: Option<Revision>,
}

impl Renewals {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { leases: Mutex::default(), clock }
    }

    /// Records that the lease has this TTL, and this stream if there is one.
    pub(super) fn keep(&self, lease: LeaseId, ttl: Duration, stream: Option<Stream>) {
        let used = self.clock.now();
        let mut leases = lock(&self.leases);
        // A renewal that ends after its lease was revoked puts its stream here again, and nothing else drops it. Only a new lease removes
        // those, so that the cost of a renewal does not depend on the number of leases.
        if !leases.contains_key(&lease) {
            leases.retain(|_, lease| used - lease.used < FORGET);
        }
        leases.insert(lease, Lease { ttl, stream, used, end: End::Open });
    }

    /// Takes the lease's stream, which is stored again if it continues.
    pub(super) fn take(&self, lease: LeaseId) -> Option<Stream> {
        lock(&self.leases).get_mut(&lease)?.stream.take()
    }

    /// Returns the lease's TTL, which etcd never changes.
    pub(super) fn ttl(&self, lease: LeaseId) -> Option<Duration> {
        lock(&self.leases).get(&lease).map(|lease| lease.ttl)
    }

    /// Records that the lease is no longer renewed.
    pub(super) fn mark(&self, lease: LeaseId, end: End) {
        if let Some(lease) = lock(&self.leases).get_mut(&lease) {
            lease.stream = None;
            lease.end = end;
        }
    }

    /// Returns how many leases may still exist in etcd: those whose time is not over, and those whose revocation was not confirmed.
    pub(crate) fn left(&self) -> usize {
        let now = self.clock.now();
        let leases = lock(&self.leases);
        let may_live = |lease: &&Lease| lease.end == End::Asked || now - lease.used < lease.ttl;
        leases.values().filter(may_live).count()
    }

    /// Returns the renewed leases, each with the rest of its TTL since etcd's response.
    pub(crate) fn live(&self) -> Vec<(LeaseId, Duration)> {
        let now = self.clock.now();
        let leases = lock(&self.leases);
        let renewed = leases.iter().filter(|(_, lease)| lease.end == End::Open);
        let left = renewed.map(|(id, lease)| (*id, (lease.used + lease.ttl) - now));
        left.filter(|(_, left)| !left.is_zero()).collect()
    }

    /// Forgets a lease that is gone, or that expires by itself.
    pub(crate) fn forget(&self, lease: LeaseId) {
        lock(&self.leases).remove(&lease);
    }
}

impl Stream {
    /// Opens a stream, which renews the lease, and returns etcd's response.
    pub(super) async fn open(
        connection: Connection,
        lease: LeaseId,
        known: Option<Duration>,
    ) -> Result<(Renewed, Self), Error> {
        let (keeper, answers) = connection.client.lease_client().keep_alive(lease).await?;
        let mut stream = Self { keeper, answers, connection };
        // etcd-client does not return the TTL of the first response. It is the granted TTL; if unknown, another round trip reads it.
        let renewed = match known {
            Some(ttl) => Renewed { ttl, revision: None },
            None => stream.renew(lease).await?,
        };
        Ok((renewed, stream))
    }

    /// Renews the lease.
    pub(super) async fn renew(&mut self, lease: LeaseId) -> Result<Renewed, Error> {
        self.keeper.keep_alive().await?;
        match self.answers.message().await? {
            // A request without a response ends the stream, so this responds to the request just sent.
            Some(answer) if answer.id() == lease => Ok(Renewed {
                ttl: Duration::from_secs(u64::try_from(answer.ttl()).unwrap_or(0)),
                revision: answer.header().and_then(|header| Revision::new(header.revision())),
            }),
            Some(_) => Err(malformed()),
            None => Err(Error::LeaseKeepAliveError("stream ended".into())),
        }
    }
}

/// A connection over which a request was sent: its endpoint and its generation.
type Asked = (Arc<Endpoint>, Option<u64>);

/// One renewal, from its first request to the first response. It has no clock: the client reports when a part of the time has passed
/// without a response.
pub(super) struct Renewal {
    ring: Arc<Ring>,
    kept: Option<Stream>,
    /// The rest of a round of all endpoints; `None` before the first round.
    round: Option<IntoIter<Arc<Endpoint>>>,
    newest: Option<Asked>,
    /// Connections without a response for a part of the time, in the order in which they were tried.
    silent: Vec<Asked>,
    /// True if another round may begin, because another part of the time is over.
    may_repeat: bool,
    pub(super) failures: Vec<Failure>,
}

impl Renewal {
    /// Creates a renewal. It uses the last renewal's stream first, unless its connection is lost: it may lead to another cluster.
    pub(super) fn new(ring: Arc<Ring>, kept: Option<Stream>) -> Self {
        Self {
            ring,
            kept: kept.filter(|Stream { connection, .. }| {
                !connection.endpoint.has_lost(connection.generation)
            }),
            round: None,
            newest: None,
            silent: Vec::new(),
            may_repeat: false,
            failures: Vec::new(),
        }
    }

    /// Returns the next endpoint to try, with its stream, or `None` for a stream to open. Returns nothing once an endpoint has refused,
    /// or if all have failed or were tried; another may follow after [`silence`](Self::silence).
    pub(super) fn next(&mut self) -> Option<(Arc<Endpoint>, Option<Stream>)> {
        self.newest = None;
        if self.failures.iter().any(|it| matches!(it, Failure::Refused(..))) {
            return None;
        }
        let kept = self.kept.take();
        let endpoint = match &kept {
            Some(stream) => Arc::clone(&stream.connection.endpoint),
            None => self.next_endpoint()?,
        };
        let generation = kept.as_ref().map(|stream| stream.connection.generation);
        self.newest = Some((Arc::clone(&endpoint), generation));
        Some((endpoint, kept))
    }

    /// Endpoints that were not tried come first, then all again, over new connections if the old ones are silent.
    fn next_endpoint(&mut self) -> Option<Arc<Endpoint>> {
        let is = |one: &Arc<Endpoint>, (other, _): &Asked| Arc::ptr_eq(one, other);
        let (ring, silent) = (&self.ring, &self.silent);
        let round = self.round.get_or_insert_with(|| {
            let mut first = ring.round();
            first.retain(|it| !silent.iter().any(|of| is(it, of)));
            first.into_iter()
        });
        let mut next = round.next();
        if next.is_none() && std::mem::take(&mut self.may_repeat) {
            *round = ring.round().into_iter();
            next = round.next();
        }
        let next = next?;
        for (_, generation) in silent.iter().filter(|of| is(&next, of)) {
            // Not lost yet, because it may still respond.
            generation.inspect(|generation| next.reopen(*generation));
        }
        Some(next)
    }

    /// Records that a part of the time passed without a response. Returns the endpoint tried last, if that was in this part.
    pub(super) fn silence(&mut self) -> Option<Arc<Endpoint>> {
        self.may_repeat = true;
        let (endpoint, generation) = self.newest.take()?;
        let generation = generation.or_else(|| Some(endpoint.generation()));
        self.silent.push((endpoint.clone(), generation));
        Some(endpoint)
    }

    /// Records a response. Silent connections that were tried earlier are worse, and are not used again.
    pub(super) fn answered(&self, stream: &Stream) {
        let connection = &stream.connection;
        let before = self.silent.iter().take_while(|(endpoint, generation)| {
            !Arc::ptr_eq(endpoint, &connection.endpoint)
                || *generation != Some(connection.generation)
        });
        for (endpoint, generation) in before {
            generation.inspect(|generation| endpoint.lose(*generation));
        }
    }

    /// Returns the result without a response. An endpoint that failed may have renewed the lease nonetheless.
    pub(super) fn outcome(self) -> Failure {
        let is_refused = |it: &&Failure| matches!(it, Failure::Refused(..));
        if let Some(refused) = self.failures.iter().find(is_refused) {
            return refused.clone();
        }
        let causes = self.failures.iter().map(Failure::cause).collect();
        match self.failures.iter().any(|it| matches!(it, Failure::Unknown(_))) {
            true => Failure::Unknown(all(causes)),
            false => unserved(causes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::endpoint::Means;
    use super::super::errors::named;
    use super::super::target::Target;
    use super::*;
    use crate::clock::BootClock;
    use crate::values::Config;

    /// Returns a renewal without a stream, at endpoints of these names.
    fn renewal(names: &[&str]) -> Renewal {
        let config = Config::new(["http://a:1"]);
        let means = Means::new(&config, Arc::new(BootClock));
        let endpoints = names.iter().map(|name| Endpoint::new(Target::of(name), true, &means));
        let ring = Ring::default();
        ring.replace(endpoints.collect(), 0);
        Renewal::new(Arc::new(ring), None)
    }

    /// Returns the name of the endpoint that is tried next.
    fn next(renewal: &mut Renewal) -> Option<String> {
        Some(renewal.next()?.0.name.clone())
    }

    fn unavailable() -> Failure {
        Failure::Unavailable(named("a", "refused".to_owned()))
    }

    #[test]
    fn each_silence_lets_one_more_round_begin() {
        let mut renewal = renewal(&["a", "b"]);
        assert_eq!(next(&mut renewal).as_deref(), Some("a"));
        assert!(renewal.silence().is_some());
        for expected in ["b", "a", "b"] {
            assert_eq!(next(&mut renewal).as_deref(), Some(expected));
            renewal.failures.push(unavailable());
        }
        assert_eq!(next(&mut renewal), None, "all have failed");
        assert!(renewal.silence().is_none());
        assert_eq!(next(&mut renewal).as_deref(), Some("a"));
    }

    /// Found by torture: an etcd without users refused a revocation from one with users, and the shutdown reported a lease.
    #[test]
    fn refused_revocation_leaves_nothing_once_its_lease_is_over() {
        let renewals = Renewals::new(Arc::new(BootClock));
        renewals.keep(1, Duration::ZERO, None);
        renewals.mark(1, End::Asked);
        assert_eq!(renewals.left(), 1, "etcd has not answered");
        renewals.mark(1, End::Refused);
        assert_eq!(renewals.left(), 0);
    }
}
