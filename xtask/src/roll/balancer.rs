//! Balancer on the side of the clients: it asks each replica whether it is ready, and picks among those that are.
//!
//! As Kubernetes does, it takes a replica out that says it is not ready, or that does not answer the probe.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::http::Request;

/// The pause between two probes of a replica. Kubernetes asks each few seconds, and a service must not rely on more.
const PERIOD: Duration = Duration::from_millis(200);

/// How long a probe waits for its answer.
const LIMIT: Duration = Duration::from_secs(1);

/// The replicas, and what they last said.
#[derive(Debug, Default)]
pub(super) struct Balancer {
    state: Mutex<State>,
    next: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    /// Each replica that is to be probed, and whether it is ready.
    replicas: Vec<(SocketAddr, bool)>,
    /// The replicas, past ones too, that have said that they are not ready.
    unready: HashSet<SocketAddr>,
}

impl Balancer {
    /// Adds a replica, which gets requests once it says that it is ready.
    pub(super) fn add(&self, replica: SocketAddr) {
        self.state().replicas.push((replica, false));
    }

    /// Forgets a replica that has exited.
    pub(super) fn forget(&self, replica: SocketAddr) {
        self.state().replicas.retain(|(it, _)| *it != replica);
    }

    /// Returns the next replica that is ready.
    pub(super) fn pick(&self) -> Option<SocketAddr> {
        let state = self.state();
        let ready: Vec<_> = state.replicas.iter().filter(|(_, ready)| *ready).collect();
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        let (replica, _) = ready.get(next.checked_rem(ready.len())?)?;
        Some(*replica)
    }

    /// Returns how many replicas are ready.
    pub(super) fn ready(&self) -> usize {
        let state = self.state();
        state.replicas.iter().filter(|(_, ready)| *ready).count()
    }

    /// Returns whether a replica has said that it is not ready, so that its clients had to expect a closed port.
    pub(super) fn was_unready(&self, replica: SocketAddr) -> bool {
        self.state().unready.contains(&replica)
    }

    /// Probes all replicas until `ends`.
    pub(super) fn probe(&self, ends: &AtomicBool) {
        // Until its first 200 a replica starts, which is not what `unready` means.
        let mut begun = HashSet::new();
        while !ends.load(Ordering::Relaxed) {
            let replicas: Vec<_> = self.state().replicas.iter().map(|it| it.0).collect();
            for replica in replicas {
                let answer = Request::new("GET", replica, "/ready").limit(LIMIT).send();
                let status = answer.map(|answer| answer.status).ok();
                let mut state = self.state();
                if status == Some(200) {
                    begun.insert(replica);
                } else if status == Some(503) && begun.contains(&replica) {
                    state.unready.insert(replica);
                }
                for (it, ready) in &mut state.replicas {
                    if *it == replica {
                        *ready = status == Some(200);
                    }
                }
            }
            thread::sleep(PERIOD);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picks_ready_replicas_in_rotation() {
        let balancer = Balancer::default();
        let [one, other, third] = [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        assert_eq!(balancer.pick(), None);
        for replica in [one, other, third] {
            balancer.add(replica);
        }
        assert_eq!(balancer.pick(), None, "no replica is ready");
        for at in [0, 2] {
            balancer.state().replicas[at].1 = true;
        }
        let picked: HashSet<_> = (0..4).filter_map(|_| balancer.pick()).collect();
        assert_eq!(picked, HashSet::from([one, third]));
        balancer.forget(one);
        assert_eq!((balancer.pick(), balancer.ready()), (Some(third), 1));
    }
}
