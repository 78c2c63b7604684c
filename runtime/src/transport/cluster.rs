//! Clusters behind the endpoints: one configuration may reach only one cluster (rule P35).
//!
//! Each cluster has its own locks, so processes that use two of them would both own a name.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::{Arc, Mutex, Weak};

use etcd_locked_core::{Cause, Failure, Refusal};
use tokio::sync::Notify;

use super::endpoint::Endpoint;
use super::errors::named;
use super::reach::Reach;
use crate::mutex::lock;
use crate::values::{BackendError, etcd_bugs, shown};

/// Id of a cluster, contained in the header of every response.
pub(super) type ClusterId = u64;

/// Length to which a version is cut, in characters.
const VERSION: usize = 40;

/// The cluster of each endpoint.
pub(super) struct Clusters {
    seen: Mutex<Seen>,
    /// Notified when another cluster replaces the engine's.
    pub(super) reach: Arc<Reach>,
    /// Wakes the scout, which contacts all endpoints when one belongs to another cluster.
    wake: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Seen {
    /// The engine's cluster: that of the first response.
    home: Option<ClusterId>,
    /// The last known cluster of each configured endpoint.
    endpoints: BTreeMap<String, ClusterId>,
    /// Endpoints known only from the member list, with the generation of their last proven connections. All belong to home.
    members: BTreeMap<String, (Weak<Endpoint>, u64)>,
    /// Known bugs already logged, one text for each set of bugs.
    bugs: Vec<String>,
    /// True once an endpoint has responded.
    met: bool,
    /// True if all endpoints were contacted since there are two clusters.
    is_certain: bool,
    /// Former homes that all endpoints have left, because their cluster was created anew. None becomes home again.
    past: Vec<ClusterId>,
}

impl Clusters {
    pub(super) fn new(reach: Arc<Reach>, wake: Arc<Notify>) -> Self {
        Self { seen: Mutex::default(), reach, wake }
    }

    /// Records the cluster of a configured endpoint; an error if the engine must not use the endpoint.
    pub(super) fn answered(&self, endpoint: &str, id: ClusterId) -> Result<(), Cause> {
        let mut seen = lock(&self.seen);
        let home = *seen.home.get_or_insert(id);
        let was_mixed = seen.is_mixed();
        seen.endpoints.insert(endpoint.to_owned(), id);
        let made_anew = seen.is_made_anew(id);
        if made_anew {
            seen.past.push(home);
            seen.home = Some(id);
            // They may still lead to the former home.
            for (member, generation) in mem::take(&mut seen.members).into_values() {
                member.upgrade().inspect(|member| member.lose(generation));
            }
            self.reach.change(|state, _| state.etcd.wipe());
        }
        let result = seen.allows(endpoint, id);
        let (is_back, is_new) = (seen.past.contains(&id), seen.is_mixed() && !was_mixed);
        seen.is_certain &= was_mixed;
        drop(seen);
        // Logged outside the mutex, because a subscriber may block.
        if made_anew {
            let (before, now) = (format!("{home:x}"), format!("{id:x}"));
            tracing::warn!(parent: None, code = "etcd.cluster_changed", before, now, "the endpoints now lead to another etcd cluster: make sure that all processes use it");
        } else if is_new && is_back {
            self.confirm();
        } else if is_new {
            self.wake.notify_one();
        }
        result
    }

    /// Records that all endpoints were contacted. Until then, each may be about to respond for a restored cluster, which has a new id.
    pub(super) fn confirm(&self) {
        let mut seen = lock(&self.seen);
        let mixture = seen.mixture().filter(|_| !mem::replace(&mut seen.is_certain, true));
        drop(seen);
        if let Some(message) = mixture {
            tracing::error!(parent: None, code = "etcd.two_clusters", "no locks are granted until this is corrected: {message}");
        }
    }

    /// Logs the first endpoint that responds, and the known bugs of its version once.
    pub(super) fn meet(&self, endpoint: &str, id: ClusterId, version: &str) {
        let mut seen = lock(&self.seen);
        let first = !mem::replace(&mut seen.met, true);
        let bugs = etcd_bugs(version).filter(|bugs| !seen.bugs.contains(bugs));
        seen.bugs.extend(bugs.clone());
        drop(seen);
        let version = shown(version, VERSION);
        if first {
            let cluster = format!("{id:x}");
            tracing::info!(parent: None, endpoint, cluster, version, "connected to etcd");
        }
        if let Some(bugs) = bugs {
            tracing::warn!(parent: None, code = "etcd.version", endpoint, version, "upgrade etcd, because this version has known bugs: {bugs}");
        }
    }

    /// Records the cluster of an endpoint known only from the member list. If it belongs to another cluster, it is not used, but the
    /// configuration stays valid. Its connection is lost when another cluster becomes the engine's.
    pub(super) fn joined(
        &self,
        endpoint: &Arc<Endpoint>,
        id: ClusterId,
        generation: u64,
    ) -> Result<(), Cause> {
        let mut seen = lock(&self.seen);
        seen.home.get_or_insert(id);
        seen.allows(&endpoint.name, id)?;
        seen.members.insert(endpoint.name.clone(), (Arc::downgrade(endpoint), generation));
        Ok(())
    }

    /// Returns true if this endpoint has responded as a member of the engine's cluster.
    pub(super) fn knows(&self, endpoint: &str) -> bool {
        let seen = lock(&self.seen);
        let configured = seen.endpoints.get(endpoint);
        seen.members.contains_key(endpoint) || configured.is_some_and(|id| Some(*id) == seen.home)
    }

    /// Forgets an endpoint that was removed from the member list, or from the addresses of its name.
    pub(super) fn forget(&self, endpoint: &str) {
        let mut seen = lock(&self.seen);
        seen.endpoints.remove(endpoint);
        seen.members.remove(endpoint);
    }

    /// Refuses to take locks while the endpoints belong to two clusters. Renewals and releases continue.
    pub(super) fn acquires(&self) -> Result<(), Failure> {
        let seen = lock(&self.seen);
        let Some(message) = seen.mixture() else { return Ok(()) };
        Err(match seen.is_certain {
            true => Failure::Refused(Refusal::Other, Arc::new(BackendError::permanent(message))),
            false => Failure::Unavailable(Arc::new(BackendError::passing(message))),
        })
    }

    pub(super) fn is_mixed(&self) -> bool {
        lock(&self.seen).is_mixed()
    }
}

impl Seen {
    /// Returns true if all configured endpoints have left home for this cluster, which is new. An endpoint whose last response came from
    /// home makes it a second cluster.
    fn is_made_anew(&self, id: ClusterId) -> bool {
        self.home != Some(id)
            && !self.past.contains(&id)
            && self.endpoints.values().all(|other| *other == id)
    }

    fn allows(&self, endpoint: &str, id: ClusterId) -> Result<(), Cause> {
        match self.home {
            Some(home) if home != id => {
                Err(named(endpoint, format!("belongs to cluster {id:x}, the others to {home:x}")))
            }
            _ => Ok(()),
        }
    }

    /// Returns true if some endpoint belongs to another cluster than home.
    fn is_mixed(&self) -> bool {
        self.endpoints.values().any(|id| Some(*id) != self.home)
    }

    /// Names the clusters and their endpoints, home first, if there are several.
    fn mixture(&self) -> Option<String> {
        let home = self.home.filter(|_| self.is_mixed())?;
        let others: BTreeSet<_> = self.endpoints.values().filter(|id| **id != home).collect();
        let clusters = [&home].into_iter().chain(others).map(|id| {
            let of_it = self.endpoints.iter().filter(|(_, other)| *other == id);
            let endpoints: Vec<&str> = of_it.map(|(endpoint, _)| &**endpoint).collect();
            match &*endpoints {
                [] => format!("no endpoint left: cluster {id:x}"),
                endpoints => format!("{}: cluster {id:x}", endpoints.join(", ")),
            }
        });
        let clusters = clusters.collect::<Vec<_>>().join("; ");
        Some(format!(
            "the endpoints belong to different clusters: {clusters}; name endpoints of one cluster only"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::BootClock;
    use crate::transport::endpoint::Means;
    use crate::transport::target::Target;
    use crate::values::Config;

    /// Returns the clusters of a configuration, and an endpoint known only from the member list.
    fn clusters() -> (Arc<Clusters>, Arc<Endpoint>) {
        let means = Means::new(&Config::new(["http://a:1"]), Arc::new(BootClock));
        let member = Endpoint::new(Target::of("http://m:1"), false, &means);
        (means.clusters, member)
    }

    #[test]
    fn cluster_made_anew_is_accepted_once_all_endpoints_are_of_it() {
        let (clusters, _) = clusters();
        clusters.answered("http://a:1", 1).unwrap();
        clusters.answered("http://b:1", 1).unwrap();
        assert!(clusters.answered("http://a:1", 2).is_err());
        assert!(clusters.acquires().is_err());
        clusters.answered("http://b:1", 2).unwrap();
        clusters.answered("http://a:1", 2).unwrap();
        assert!(clusters.acquires().is_ok());
        // Two clusters behind one address take turns.
        assert!(clusters.answered("http://a:1", 1).is_err());
        assert!(clusters.answered("http://b:1", 1).is_err());
        assert!(clusters.acquires().is_err());
    }

    #[test]
    fn cluster_made_anew_needs_no_endpoint_that_is_not_configured() {
        let (clusters, member) = clusters();
        clusters.answered("http://a:1", 1).unwrap();
        clusters.joined(&member, 1, 1).unwrap();
        clusters.answered("http://a:1", 2).unwrap();
        assert!(clusters.acquires().is_ok());
        assert!(!clusters.knows("http://m:1"));
        assert!(member.has_lost(1), "its connection is used no more");
        clusters.joined(&member, 2, 2).unwrap();
        assert!(clusters.knows("http://m:1"));
    }

    #[test]
    fn member_of_another_cluster_makes_no_configuration_wrong() {
        let (clusters, member) = clusters();
        clusters.answered("http://a:1", 1).unwrap();
        assert!(clusters.joined(&member, 2, 1).is_err());
        assert!(!clusters.knows("http://m:1"));
        assert!(clusters.acquires().is_ok());
    }
}
