//! Clusters behind the endpoints: one configuration may reach one cluster only (rule P35).
//!
//! Each cluster has locks of its own, so processes that use two of them would both own a name.

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

/// Id of a cluster, in every header of its answers.
pub(super) type ClusterId = u64;

/// How much of a version is shown, in characters.
const VERSION: usize = 40;

/// Which cluster each endpoint is of.
pub(super) struct Clusters {
    seen: Mutex<Seen>,
    /// Is notified when another cluster takes the place of the engine's.
    pub(super) reach: Arc<Reach>,
    /// Wakes the scout, which asks all endpoints when one is of another cluster.
    wake: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Seen {
    /// The engine's cluster: that of the first answer.
    home: Option<ClusterId>,
    /// What each configured endpoint answered last.
    endpoints: BTreeMap<String, ClusterId>,
    /// Endpoints that only the member list names, with the generation of their last proven connections. All of them are of home.
    members: BTreeMap<String, (Weak<Endpoint>, u64)>,
    /// Known bugs that the log has warned of, one text for each set of them.
    bugs: Vec<String>,
    /// An endpoint has answered.
    met: bool,
    /// All endpoints were asked since there are two clusters.
    is_certain: bool,
    /// Former homes, of which no endpoint was left: their cluster was made anew. None of them becomes home again.
    past: Vec<ClusterId>,
}

impl Clusters {
    pub(super) fn new(reach: Arc<Reach>, wake: Arc<Notify>) -> Self {
        Self { seen: Mutex::default(), reach, wake }
    }

    /// Notes which cluster a configured endpoint is of; an error if the engine must not use it.
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
        // Logged without the lock, which a subscriber may keep waiting.
        if made_anew {
            let (before, now) = (format!("{home:x}"), format!("{id:x}"));
            tracing::warn!(parent: None, code = "etcd.cluster_changed", before, now, "etcd is another cluster than before");
        } else if is_new && is_back {
            self.confirm();
        } else if is_new {
            self.wake.notify_one();
        }
        result
    }

    /// All endpoints were asked. Until then, each may be about to answer for a cluster that was restored, which changes its id.
    pub(super) fn confirm(&self) {
        let mut seen = lock(&self.seen);
        let mixture = seen.mixture().filter(|_| !mem::replace(&mut seen.is_certain, true));
        drop(seen);
        if let Some(message) = mixture {
            tracing::error!(parent: None, code = "etcd.two_clusters", "no locks until this is mended: {message}");
        }
    }

    /// Logs the first endpoint that answers, and the known bugs of its version once.
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
            tracing::warn!(parent: None, code = "etcd.version", endpoint, version, "this version of etcd has known bugs: {bugs}");
        }
    }

    /// The same of an endpoint that only the member list names: one of another cluster is not used, and makes no configuration wrong.
    /// The connection is lost when another cluster becomes the engine's.
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

    /// Returns whether this endpoint has answered as a member of the engine's cluster.
    pub(super) fn knows(&self, endpoint: &str) -> bool {
        let seen = lock(&self.seen);
        let configured = seen.endpoints.get(endpoint);
        seen.members.contains_key(endpoint) || configured.is_some_and(|id| Some(*id) == seen.home)
    }

    /// Forgets an endpoint that was removed: from the member list, or from the addresses of its name.
    pub(super) fn forget(&self, endpoint: &str) {
        let mut seen = lock(&self.seen);
        seen.endpoints.remove(endpoint);
        seen.members.remove(endpoint);
    }

    /// Refuses what takes locks while the endpoints are of two clusters; what renews and releases them goes on.
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
    /// Tells whether all configured endpoints have left home for this cluster, which is new. One that still answers for home, or
    /// did so last, makes it a second cluster.
    fn is_made_anew(&self, id: ClusterId) -> bool {
        self.home != Some(id)
            && !self.past.contains(&id)
            && self.endpoints.values().all(|other| *other == id)
    }

    fn allows(&self, endpoint: &str, id: ClusterId) -> Result<(), Cause> {
        match self.home {
            Some(home) if home != id => Err(named(
                endpoint,
                format!("of cluster {id:x}, and not of {home:x} like the others"),
            )),
            _ => Ok(()),
        }
    }

    /// Tells whether some endpoint is of another cluster than home.
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
                [] => format!("no endpoint any more: cluster {id:x}"),
                endpoints => format!("{}: cluster {id:x}", endpoints.join(", ")),
            }
        });
        let clusters = clusters.collect::<Vec<_>>().join("; ");
        Some(format!(
            "the endpoints are of different clusters: {clusters}; name endpoints of one cluster only"
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

    /// The clusters of a configuration, and an endpoint that only the member list names.
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
