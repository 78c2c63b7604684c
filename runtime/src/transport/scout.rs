//! Scout: contacts the endpoints, separately from exchanges, to find out their cluster, its leader and, if configured, its members (P35).
//! A name with several addresses becomes several endpoints (P32).
//!
//! An engine needs only one endpoint. But two processes that use endpoints of two clusters would both own a name. So all of several
//! endpoints are contacted before the first lease, and the silent ones until they respond. Once one endpoint has responded without a
//! login, the lease waits only briefly for the others.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{Notify, OnceCell};
use tokio::task::JoinSet;

use super::endpoint::{Endpoint, Means};
use super::ring::Ring;
use super::target::Target;
use crate::clock::{Clock, Moment, about, by};
use crate::values::is_endpoint;

/// How long the first lease waits for the other endpoints once one is proven.
const OTHERS: Duration = Duration::from_millis(300);

/// The first and the longest pause before silent endpoints are tried again.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// About how often the engine asks who leads and reads the member list, once every endpoint has responded.
const PERIOD: Duration = Duration::from_secs(15);

/// How long it stays away from a leader that it had to leave.
const AWAY: Duration = Duration::from_secs(600);

/// Time limit for asking who leads, for reading the member list, and for looking up addresses.
const LIMIT: Duration = Duration::from_secs(2);

pub(super) struct Scout {
    ring: Arc<Ring>,
    means: Means,
    /// True if the member list is followed.
    follows: bool,
    begun: OnceCell<()>,
}

impl Scout {
    pub(super) fn new(ring: Arc<Ring>, means: Means, follows: bool) -> Self {
        Self { ring, means, follows, begun: OnceCell::new() }
    }

    /// Contacts every endpoint once, concurrently, and continues in the background. Only the first call does so.
    pub(super) async fn begin(self: &Arc<Self>) {
        self.begun.get_or_init(|| self.ask_all()).await;
    }

    async fn ask_all(self: &Arc<Self>) {
        self.resolve().await;
        let endpoints = self.ring.round();
        if endpoints.len() < 2 && !self.means.may_change {
            return; // proven on its first use
        }
        let mut asked = JoinSet::new();
        for endpoint in endpoints {
            asked.spawn(async move { endpoint.connect().await.is_ok() });
        }
        let mut until = None;
        loop {
            let next = pin!(asked.join_next());
            let answered = match until {
                None => next.await,
                Some(until) => by(&*self.means.clock, until, next).await.flatten(),
            };
            match answered {
                // A login takes etcd some time, so with logins the lease waits for all endpoints.
                Some(Ok(true)) if !self.means.terms.keyring.source.authenticates() => {
                    until = until.or_else(|| Some(self.means.clock.now() + OTHERS));
                }
                Some(_) => {}
                None => break,
            }
        }
        self.means.clusters.confirm();
        // No exchange must wait for a silent endpoint.
        let mut open = self.ring.round();
        open.retain(|it| it.is_connected());
        let leads = |(member, leader)| member == leader;
        let leader = open.iter().find(|it| leads(it.member_and_leader()));
        if let Some(best) = leader.or(open.first()) {
            self.begin_at(best);
        }
        let (wake, clock) = (Arc::clone(&self.means.wake), Arc::clone(&self.means.clock));
        tokio::spawn(Self::go_on(Arc::downgrade(self), wake, clock));
    }

    async fn go_on(scout: Weak<Self>, wake: Arc<Notify>, clock: Arc<dyn Clock>) {
        let (first, longest) = PAUSE;
        let mut pause = first;
        let (mut asked, mut followed) = (clock.now(), None);
        loop {
            let Some(settled) = scout.upgrade().map(|it| it.is_settled()) else { return };
            let next = if settled { about(PERIOD, &*clock) } else { pause };
            pause = if settled { first } else { (pause * 2).min(longest) };
            let woken = by(&*clock, clock.now() + next, pin!(wake.notified())).await.is_some();
            if woken {
                clock.sleep_until(asked + first).await;
            }
            let Some(scout) = scout.upgrade() else { return };
            asked = clock.now();
            if woken || !settled || scout.follows {
                scout.resolve().await;
                scout.ask_silent().await;
                scout.follow().await;
            }
            if !woken {
                scout.follow_leader(&mut followed).await;
            }
        }
    }

    /// Goes to the leader, to which other members forward requests. `last` is the last leader in use, and when it was. A leader that it
    /// had to leave may be in trouble, so it returns to that only after [`AWAY`].
    async fn follow_leader(&self, last: &mut Option<(u64, Moment)>) {
        let (round, now) = (self.ring.round(), self.means.clock.now());
        let [current, _, ..] = &*round else { return };
        if !current.is_connected() || current.member_and_leader().1 == 0 {
            return;
        }
        let Ok(connection) = current.connect().await else { return };
        let mut client = connection.client.maintenance_client();
        let status = by(&*self.means.clock, now + LIMIT, pin!(client.status())).await;
        let Some(Ok(leader)) = status.map(|it| it.map(|it| it.leader())) else { return };
        let leads = |it: &&Arc<Endpoint>| leader != 0 && it.member_and_leader().0 == leader;
        let Some(best) = round.iter().find(leads) else { return };
        let was_there_lately = last.is_some_and(|(of, at)| of == leader && now - at < AWAY);
        if Arc::ptr_eq(best, current) || !was_there_lately && best.connect().await.is_ok() {
            *last = Some((leader, now));
            self.begin_at(best);
        }
    }

    /// Makes exchanges begin at this endpoint, and closes the connections of all others: one is enough.
    fn begin_at(&self, endpoint: &Arc<Endpoint>) {
        let round = self.ring.round();
        let is_other = |it: &&Arc<Endpoint>| !Arc::ptr_eq(it, endpoint);
        round.iter().take_while(is_other).for_each(|it| self.ring.move_on(it));
        let others = round.iter().filter(is_other).filter(|it| it.is_connected());
        others.for_each(|it| it.lose(it.generation()));
    }

    /// Returns true if every endpoint is known to belong to the engine's cluster.
    fn is_settled(&self) -> bool {
        let clusters = &self.means.clusters;
        self.ring.round().iter().all(|it| clusters.knows(&it.name)) && !clusters.is_mixed()
    }

    /// Contacts the endpoints that have not responded yet; while there are two clusters, all that are not in use.
    async fn ask_silent(&self) {
        let mixed = self.means.clusters.is_mixed();
        for endpoint in self.ring.round() {
            let asks = mixed || !self.means.clusters.knows(&endpoint.name);
            if asks && !endpoint.is_connected() && endpoint.connect().await.is_ok() {
                // Meanwhile exchanges may have begun to use it.
                let first = self.ring.next(&[]);
                if first.is_none_or(|first| !Arc::ptr_eq(&first, &endpoint)) {
                    endpoint.lose(endpoint.generation());
                }
            }
        }
        self.means.clusters.confirm();
    }

    /// Makes each address of a configured name an endpoint, if it has several. The previous ones stay if the addresses are unknown now.
    async fn resolve(&self) {
        let (before, clock) = (self.ring.round(), &*self.means.clock);
        let (targets, until) = (&self.means.terms.targets, clock.now() + LIMIT);
        let found = targets.iter().map(async |it| by(clock, until, pin!(it.resolved())).await);
        let mut endpoints = Vec::new();
        for (target, found) in targets.iter().zip(join_all(found).await) {
            let known = before.iter().map(|it| &it.target).filter(|it| it.url() == target.url());
            let found = found.flatten().unwrap_or_else(|| known.cloned().collect());
            endpoints.extend(found.into_iter().map(|it| {
                let known = before.iter().find(|other| other.name == it.name()).cloned();
                known.unwrap_or_else(|| Endpoint::new(it, true, &self.means))
            }));
        }
        // Members, and addresses that still work: a name server may omit some.
        let stays = |it: &&Arc<Endpoint>| {
            let is_there = endpoints.iter().any(|other| Arc::ptr_eq(other, it));
            !it.configured || (it.is_connected() && !is_there)
        };
        let others: Vec<_> = before.iter().filter(stays).cloned().collect();
        endpoints.extend(others);
        self.replace(&before, endpoints);
    }

    /// If configured, reads the member list and adds the members to the configured endpoints.
    async fn follow(&self) {
        let before = self.ring.round();
        for endpoint in before.iter().filter(|_| self.follows) {
            let Ok(connection) = endpoint.connect().await else { continue };
            let mut client = connection.client.cluster_client();
            let until = self.means.clock.now() + LIMIT;
            match by(&*self.means.clock, until, pin!(client.member_list())).await {
                Some(Ok(list)) => {
                    let members = list.members().iter().filter(|it| !it.is_learner());
                    let urls = members.flat_map(|it| it.client_urls()).map(String::as_str);
                    return self.join(&before, urls).await;
                }
                Some(Err(error)) => drop(connection.failed(&error)),
                None => {}
            }
        }
    }

    /// Builds the ring from the configured endpoints and these members. A new member has to respond first; until then, it is contacted
    /// whenever the member list is read.
    async fn join(&self, before: &[Arc<Endpoint>], urls: impl Iterator<Item = &str>) {
        let configured = before.iter().filter(|it| it.configured);
        let mut endpoints: Vec<_> = configured.cloned().collect();
        let known: Vec<_> = endpoints.iter().filter_map(|it| it.target.url()).collect();
        for url in usable(urls, &known) {
            if let Some(known) = before.iter().find(|it| it.name == url) {
                endpoints.push(Arc::clone(known));
                continue;
            }
            let new = Endpoint::new(Target::of(&url), false, &self.means);
            if new.connect().await.is_ok() {
                new.lose(new.generation());
                endpoints.push(new);
            }
        }
        self.replace(before, endpoints);
    }

    fn replace(&self, before: &[Arc<Endpoint>], endpoints: Vec<Arc<Endpoint>>) {
        let stays = |it: &&Arc<Endpoint>| endpoints.iter().any(|other| Arc::ptr_eq(other, it));
        let gone: Vec<_> = before.iter().filter(|it| !stays(it)).collect();
        if gone.is_empty() && endpoints.len() == before.len() {
            return;
        }
        self.means.endpoints.store(endpoints.len(), Ordering::Relaxed);
        let now: Vec<_> = endpoints.iter().map(|it| it.name.clone()).collect();
        self.ring.replace(endpoints, self.means.anywhere());
        gone.iter().for_each(|endpoint| endpoint.retire());
        tracing::info!(parent: None, endpoints = now.join(","), "etcd's endpoints have changed");
    }
}

impl Drop for Scout {
    fn drop(&mut self) {
        self.means.wake.notify_one(); // its task ends
    }
}

/// Returns the members' client URLs that can be reached like the configured ones, without those: of the same scheme, and on this machine
/// only if a configured one is.
fn usable<'a>(urls: impl Iterator<Item = &'a str>, configured: &[&str]) -> Vec<String> {
    let scheme = |url: &str| url.split_once("://").map(|(scheme, _)| scheme.to_owned());
    let wanted = configured.first().and_then(|url| scheme(url));
    let here = configured.iter().any(|url| is_local(url));
    let mut usable: Vec<String> = Vec::new();
    for url in urls.map(|url| url.trim_end_matches('/')) {
        let fits = scheme(url) == wanted && is_endpoint(url) && (here || !is_local(url));
        if fits && !configured.contains(&url) && !usable.iter().any(|it| it == url) {
            usable.push(url.to_owned());
        }
    }
    usable
}

/// Returns true if the URL means the machine on which it is used, as in etcd's default configuration.
fn is_local(url: &str) -> bool {
    let host = url.split_once("://").map_or(url, |(_, host)| host);
    let local = ["localhost", "127.", "0.0.0.0", "[::1]", "[::]"];
    local.iter().any(|it| host.starts_with(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_followed_only_where_they_can_be_reached() {
        let configured = ["http://10.0.0.1:2379"];
        let members = [
            "http://10.0.0.1:2379",
            "http://10.0.0.2:2379/",
            "http://10.0.0.2:2379",
            "https://10.0.0.3:2379",
            "http://localhost:2379",
            "http://127.0.0.1:2379",
            "http://0.0.0.0:2379",
            "http://[::1]:2379",
            "unix://etcd.sock",
            "http://me:secret@10.0.0.4:2379",
        ];
        assert_eq!(usable(members.into_iter(), &configured), ["http://10.0.0.2:2379"]);
        let configured = ["http://127.0.0.1:1"];
        let members = ["http://127.0.0.1:2", "http://localhost:3"];
        assert_eq!(usable(members.into_iter(), &configured), members);
    }
}
