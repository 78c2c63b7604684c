//! Lease operations of the store: grant, renew, revoke, expire and list.

use std::time::Duration;

use etcd_client::proto::{
    PbLeaseGrantRequest, PbLeaseGrantResponse, PbLeaseKeepAliveResponse, PbLeaseLeasesResponse,
    PbLeaseRevokeRequest, PbLeaseRevokeResponse, PbLeaseStatus, PbLeaseTimeToLiveRequest,
    PbLeaseTimeToLiveResponse,
};

use super::{Refusal, Store};

/// Shortest TTL, in seconds: one and a half times etcd's default election time-out, rounded up.
const MIN_TTL: i64 = 2;

/// Longest TTL, in seconds.
const MAX_TTL: i64 = 9_000_000_000;

impl Store {
    /// Ends the leases that have expired by `now`, each with its keys in one revision. A lease without keys makes no revision.
    ///
    /// `now` is the time since any fixed start, the same one in every call.
    pub fn expire(&mut self, now: Duration) {
        while let Some((until, id)) = self.leases.first()
            && until <= now
        {
            self.end_lease(id);
        }
    }

    /// Returns the time at which the next lease expires.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Duration> {
        self.leases.first().map(|(until, _)| until)
    }

    /// Elects another leader: each lease gets its whole TTL again, and the term grows by one.
    pub fn promote(&mut self, now: Duration) {
        for id in self.leases.ids() {
            self.leases.renew(id, now);
        }
        self.term += 1;
    }

    /// Grants a lease of at least two seconds; an id of 0 lets the store choose.
    ///
    /// # Errors
    ///
    /// The id is in use, or the TTL is above 9,000,000,000 seconds.
    pub fn lease_grant(
        &mut self,
        now: Duration,
        request: &PbLeaseGrantRequest,
    ) -> Result<PbLeaseGrantResponse, Refusal> {
        if request.ttl > MAX_TTL {
            return Err(Refusal::TTL_TOO_LARGE.into());
        }
        if self.leases.contains(request.id) {
            return Err(Refusal::LEASE_EXISTS.into());
        }
        let id = match request.id {
            0 => self.leases.choose(),
            id => id,
        };
        let ttl = request.ttl.max(MIN_TTL);
        self.leases.insert(id, ttl, now);
        Ok(PbLeaseGrantResponse { header: Some(self.header()), id, ttl, error: String::new() })
    }

    /// Ends a lease, and deletes its keys in one revision.
    ///
    /// # Errors
    ///
    /// No lease has that id.
    pub fn lease_revoke(
        &mut self,
        request: &PbLeaseRevokeRequest,
    ) -> Result<PbLeaseRevokeResponse, Refusal> {
        if !self.leases.contains(request.id) {
            return Err(Refusal::LEASE_NOT_FOUND.into());
        }
        self.end_lease(request.id);
        Ok(PbLeaseRevokeResponse { header: Some(self.header()) })
    }

    /// Gives a lease its whole TTL again. A TTL of 0 in the response means that there is no such lease.
    pub fn lease_keep_alive(&mut self, now: Duration, id: i64) -> PbLeaseKeepAliveResponse {
        PbLeaseKeepAliveResponse {
            header: Some(self.header()),
            id,
            ttl: self.leases.renew(id, now).unwrap_or(0),
        }
    }

    /// Returns the time that a lease has left, in whole seconds, and its keys. A TTL of -1 means that there is no such lease.
    pub fn lease_time_to_live(
        &self,
        now: Duration,
        request: &PbLeaseTimeToLiveRequest,
    ) -> PbLeaseTimeToLiveResponse {
        let header = Some(self.header());
        let Some(lease) = self.leases.get(request.id) else {
            return PbLeaseTimeToLiveResponse {
                header,
                id: request.id,
                ttl: -1,
                ..PbLeaseTimeToLiveResponse::default()
            };
        };
        let left = lease.until.saturating_sub(now).as_secs();
        PbLeaseTimeToLiveResponse {
            header,
            id: request.id,
            ttl: i64::try_from(left).unwrap_or(i64::MAX),
            granted_ttl: lease.ttl,
            keys: if request.keys { lease.keys.iter().cloned().collect() } else { Vec::new() },
        }
    }

    /// Returns all leases, in the order in which they expire.
    pub fn lease_leases(&self) -> PbLeaseLeasesResponse {
        PbLeaseLeasesResponse {
            header: Some(self.header()),
            leases: self.leases.by_end().map(|(_, id)| PbLeaseStatus { id }).collect(),
        }
    }

    fn end_lease(&mut self, id: i64) {
        if let Some(lease) = self.leases.remove(id) {
            self.write(|write| {
                for key in &lease.keys {
                    write.delete_key(key);
                }
            });
        }
    }
}
