//! Granting, renewing and ending leases.

use std::time::Duration;

use etcd_client::proto::{
    PbLeaseGrantRequest, PbLeaseGrantResponse, PbLeaseKeepAliveResponse, PbLeaseLeasesResponse,
    PbLeaseRevokeRequest, PbLeaseRevokeResponse, PbLeaseStatus, PbLeaseTimeToLiveRequest,
    PbLeaseTimeToLiveResponse,
};

use super::{Refusal, Store};

/// In seconds: one and a half times etcd's default election time-out, rounded up.
const MIN_TTL: i64 = 2;

/// In seconds.
const MAX_TTL: i64 = 9_000_000_000;

impl Store {
    /// Ends the leases that have run out by `now`, each with its keys as one revision (none, if it has none).
    ///
    /// `now` is the time since any fixed start, the same one in every call.
    pub fn expire(&mut self, now: Duration) {
        while let Some((until, id)) = self.leases.first()
            && until <= now
        {
            self.end_lease(id);
        }
    }

    /// When the next lease runs out.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Duration> {
        self.leases.first().map(|(until, _)| until)
    }

    /// Another leader: each lease has its whole TTL again, and the term is one more.
    pub fn promote(&mut self, now: Duration) {
        for id in self.leases.ids() {
            self.leases.renew(id, now);
        }
        self.term += 1;
    }

    /// Grants a lease of two seconds at least; an id of 0 lets the store choose.
    ///
    /// # Errors
    ///
    /// There is a lease of that id, or the TTL is above 9,000,000,000 seconds.
    pub fn lease_grant(
        &mut self,
        now: Duration,
        request: &PbLeaseGrantRequest,
    ) -> Result<PbLeaseGrantResponse, Refusal> {
        if request.ttl > MAX_TTL {
            return Err(Refusal::ttl_too_large());
        }
        if self.leases.contains(request.id) {
            return Err(Refusal::lease_exists());
        }
        let id = match request.id {
            0 => self.leases.choose(),
            id => id,
        };
        let ttl = request.ttl.max(MIN_TTL);
        self.leases.insert(id, ttl, now);
        Ok(PbLeaseGrantResponse {
            header: Some(self.header()),
            id,
            ttl,
            error: String::new(),
        })
    }

    /// Ends a lease, with its keys as one revision.
    ///
    /// # Errors
    ///
    /// There is no such lease.
    pub fn lease_revoke(
        &mut self,
        request: &PbLeaseRevokeRequest,
    ) -> Result<PbLeaseRevokeResponse, Refusal> {
        if !self.leases.contains(request.id) {
            return Err(Refusal::lease_not_found());
        }
        self.end_lease(request.id);
        Ok(PbLeaseRevokeResponse {
            header: Some(self.header()),
        })
    }

    /// Gives a lease its whole TTL again; an answered TTL of 0 says that there is no such lease.
    pub fn lease_keep_alive(&mut self, now: Duration, id: i64) -> PbLeaseKeepAliveResponse {
        PbLeaseKeepAliveResponse {
            header: Some(self.header()),
            id,
            ttl: self.leases.renew(id, now).unwrap_or(0),
        }
    }

    /// How long a lease has left, in whole seconds, and which keys hang on it; -1: there is no such lease.
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
            keys: if request.keys {
                lease.keys.iter().cloned().collect()
            } else {
                Vec::new()
            },
        }
    }

    /// All leases; those that end first, first.
    pub fn lease_leases(&self) -> PbLeaseLeasesResponse {
        PbLeaseLeasesResponse {
            header: Some(self.header()),
            leases: self
                .leases
                .by_end()
                .map(|(_, id)| PbLeaseStatus { id })
                .collect(),
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
