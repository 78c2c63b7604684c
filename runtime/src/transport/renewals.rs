//! Renewals of leases: their streams, kept open from one renewal to the next (rule P30).

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_client::{Error, LeaseKeepAliveStream, LeaseKeeper};
use etcd_locked_core::{LeaseId, Revision};

use super::convert::malformed;
use super::endpoint::{Connection, Endpoint};
use crate::clock::{Clock, Moment};

/// A lease not renewed for this long has outlived the longest TTL of a session.
const FORGET: Duration = Duration::from_secs(600);

/// What is known of leases between their renewals.
pub(super) struct Renewals {
    leases: Mutex<Leases>,
    clock: Arc<dyn Clock>,
}

/// The leases that were renewed, or granted to be renewed, within [`FORGET`].
#[derive(Default)]
struct Leases {
    known: HashMap<LeaseId, Lease>,
    /// Every use of a lease, the oldest first: what is over is found without a walk over all leases.
    uses: VecDeque<(Moment, LeaseId)>,
}

struct Lease {
    /// As etcd said last.
    ttl: Duration,
    stream: Option<Stream>,
    used: Moment,
    end: End,
}

/// What is known of a lease's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It is renewed.
    Open,
    /// It is to be revoked, and etcd has not answered.
    Asked,
    /// etcd has refused to revoke it: it runs out by itself.
    Refused,
}

/// A lease's renewal stream, with the connection it runs on.
pub(super) struct Stream {
    keeper: LeaseKeeper,
    answers: LeaseKeepAliveStream,
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) connection: Connection,
}

/// What etcd answers to a renewal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Renewed {
    /// The TTL the lease has now; zero: there is no such lease.
    pub(super) ttl: Duration,
    /// The header's revision; `None`, where etcd-client keeps the answer to itself.
    pub(super) revision: Option<Revision>,
}

impl Renewals {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { leases: Mutex::default(), clock }
    }

    /// The lease has this TTL, and this stream if there is one.
    pub(super) fn keep(&self, lease: LeaseId, ttl: Duration, stream: Option<Stream>) {
        let used = self.clock.now();
        let kept = Lease { ttl, stream, used, end: End::Open };
        self.leases().keep(lease, kept);
    }

    /// The lease's stream, to be kept again if it goes on.
    pub(super) fn take(&self, lease: LeaseId) -> Option<Stream> {
        self.leases().known.get_mut(&lease)?.stream.take()
    }

    /// The lease's TTL, which etcd never changes.
    pub(super) fn ttl(&self, lease: LeaseId) -> Option<Duration> {
        self.leases().known.get(&lease).map(|lease| lease.ttl)
    }

    /// The lease is not renewed any more, and is to be revoked.
    pub(super) fn end(&self, lease: LeaseId) {
        if let Some(lease) = self.leases().known.get_mut(&lease) {
            lease.stream = None;
            lease.end = End::Asked;
        }
    }

    /// etcd has refused to revoke it.
    pub(super) fn refused(&self, lease: LeaseId) {
        if let Some(lease) = self.leases().known.get_mut(&lease) {
            lease.end = End::Refused;
        }
    }

    /// How many leases etcd may still have: those whose time is not over, and those whose revocation it has not answered.
    pub(super) fn left(&self) -> usize {
        let now = self.clock.now();
        let leases = self.leases();
        let left = leases
            .known
            .values()
            .filter(|lease| lease.end == End::Asked || now - lease.used < lease.ttl);
        left.count()
    }

    /// The leases that are renewed, each with what is left of its TTL since etcd has answered.
    pub(super) fn live(&self) -> Vec<(LeaseId, Duration)> {
        let now = self.clock.now();
        let leases = self.leases();
        let live = leases.known.iter().filter(|(_, lease)| lease.end == End::Open);
        let live = live.map(|(id, lease)| (*id, (lease.used + lease.ttl) - now));
        live.filter(|(_, left)| !left.is_zero()).collect()
    }

    /// The lease is gone.
    pub(super) fn forget(&self, lease: LeaseId) {
        self.leases().known.remove(&lease);
    }

    fn leases(&self) -> MutexGuard<'_, Leases> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Leases {
    /// A lease is used now. Drops the leases whose last use is too long ago; answers how many uses that went through.
    fn keep(&mut self, id: LeaseId, lease: Lease) -> usize {
        let now = lease.used;
        // A renewal that ends after its lease has been revoked puts its stream here again; nothing else drops it.
        let mut over = 0;
        while self.uses.front().is_some_and(|(used, _)| now - *used >= FORGET) {
            over += 1;
            let Some((used, old)) = self.uses.pop_front() else {
                break;
            };
            if self.known.get(&old).is_some_and(|lease| lease.used == used) {
                self.known.remove(&old);
            }
        }
        self.uses.push_back((now, id));
        self.known.insert(id, lease);
        over
    }
}

impl Stream {
    /// Opens a stream, which renews the lease; answers what etcd said of it.
    pub(super) async fn open(
        connection: Connection,
        endpoint: Arc<Endpoint>,
        lease: LeaseId,
        known: Option<Duration>,
    ) -> Result<(Renewed, Self), Error> {
        let (keeper, answers) = connection.client.lease_client().keep_alive(lease).await?;
        let mut stream = Self { keeper, answers, endpoint, connection };
        // etcd-client keeps the first answer's TTL to itself, though not that there is one. It is what was granted;
        // only where that is not known, another round trip asks for it.
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
            // An unanswered request ends the stream, so this answers the request just sent.
            Some(answer) if answer.id() == lease => Ok(Renewed {
                ttl: Duration::from_secs(u64::try_from(answer.ttl()).unwrap_or(0)),
                revision: answer.header().and_then(|header| Revision::new(header.revision())),
            }),
            Some(_) => Err(malformed()),
            None => Err(Error::LeaseKeepAliveError("stream ended".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used_at(secs: u64) -> Lease {
        Lease {
            ttl: Duration::from_secs(2),
            stream: None,
            used: Moment::after_boot(Duration::from_secs(secs)),
            end: End::Open,
        }
    }

    #[test]
    fn keeping_a_lease_goes_through_no_others() {
        let mut leases = Leases::default();
        for id in 0..10_000 {
            assert_eq!(leases.keep(id, used_at(1)), 0, "{id}");
        }
        assert_eq!(leases.known.len(), 10_000);
    }

    /// Found by torture: etcd without users refused the revocation that came from one with users, and the shutdown told of a lease.
    #[test]
    fn refused_revocation_leaves_nothing_once_its_lease_is_over() {
        let renewals = Renewals::new(Arc::new(crate::clock::BootClock));
        renewals.leases().keep(1, used_at(0));
        renewals.end(1);
        assert_eq!(renewals.left(), 1, "etcd has not answered");
        renewals.refused(1);
        assert_eq!(renewals.left(), 0);
    }

    #[test]
    fn leases_are_forgotten_after_their_last_use() {
        let mut leases = Leases::default();
        leases.keep(1, used_at(1));
        leases.keep(2, used_at(1));
        leases.keep(1, used_at(500));
        assert_eq!(leases.keep(3, used_at(601)), 2);
        let mut known: Vec<_> = leases.known.keys().copied().collect();
        known.sort_unstable();
        assert_eq!(known, [1, 3]);
    }
}
