//! Scout: asks the endpoints, apart from the exchanges, which cluster they are of and, if configured, who its members are (P35).
//!
//! An engine needs one endpoint only. Two processes that use different ones of two clusters would both own a name, so every
//! endpoint is asked before the first lease, and those that were silent then are asked until they answer. Once one endpoint has
//! answered without a login, the lease waits only briefly for the others.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{Notify, OnceCell};
use tokio::task::JoinSet;

use super::endpoint::{Endpoint, Means};
use super::ring::Ring;
use super::target::Target;
use crate::clock::{Clock, by, until};
use crate::values::is_endpoint;

/// How long the first lease waits for the other endpoints once one is proven.
const OTHERS: Duration = Duration::from_millis(300);

/// The first and the longest pause before silent endpoints are asked again.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// How often the member list is read, once every endpoint has answered.
const PERIOD: Duration = Duration::from_secs(15);

/// How long reading the member list may take.
const LIST: Duration = Duration::from_secs(2);

pub(super) struct Scout {
    ring: Arc<Ring>,
    means: Means,
    /// If the member list is followed: the endpoints of the configuration, which stay, whatever the list says.
    configured: Option<Vec<Arc<Endpoint>>>,
    begun: OnceCell<()>,
    wake: Arc<Notify>,
}

impl Scout {
    pub(super) fn new(
        ring: Arc<Ring>,
        means: Means,
        configured: Option<Vec<Arc<Endpoint>>>,
    ) -> Self {
        Self { ring, means, configured, begun: OnceCell::new(), wake: Arc::default() }
    }

    /// Asks every endpoint once, all at the same time, and goes on in the background. Only the first call does so.
    pub(super) async fn begin(self: &Arc<Self>) {
        self.begun.get_or_init(|| self.ask_all()).await;
    }

    /// An endpoint has failed, so the members may be others.
    pub(super) fn failed(&self) {
        if self.configured.is_some() {
            self.wake.notify_one();
        }
    }

    async fn ask_all(self: &Arc<Self>) {
        let endpoints = self.ring.round();
        if endpoints.len() < 2 && self.configured.is_none() {
            return; // proven when it is first used
        }
        let mut asked = JoinSet::new();
        for endpoint in endpoints {
            asked.spawn(async move { endpoint.connect(false).await.is_ok() });
        }
        let mut until = None;
        loop {
            let next = pin!(asked.join_next());
            let answered = match until {
                None => next.await,
                Some(until) => by(&*self.means.clock, until, next).await.flatten(),
            };
            match answered {
                // A login takes etcd a while, so all endpoints that want one are waited for.
                Some(Ok(true)) if !self.means.terms.keyring.source.authenticates() => {
                    until = until.or_else(|| Some(self.means.clock.now() + OTHERS));
                }
                Some(_) => {}
                None => break,
            }
        }
        // One connection is enough.
        let endpoints = self.ring.round().into_iter();
        endpoints.filter(|it| it.is_connected()).skip(1).for_each(|it| it.lose(it.generation()));
        let (wake, clock) = (Arc::clone(&self.wake), Arc::clone(&self.means.clock));
        tokio::spawn(Self::go_on(Arc::downgrade(self), wake, clock));
    }

    async fn go_on(scout: Weak<Self>, wake: Arc<Notify>, clock: Arc<dyn Clock>) {
        let (first, longest) = PAUSE;
        let mut pause = first;
        loop {
            let state = scout.upgrade().map(|it| (it.is_settled(), it.configured.is_some()));
            let Some((settled, follows)) = state else { return };
            let next = if settled { follows.then_some(PERIOD) } else { Some(pause) };
            pause = if settled { first } else { (pause * 2).min(longest) };
            tokio::select! {
                () = until(&*clock, next.map(|next| clock.now() + next)) => {}
                () = wake.notified() => clock.sleep_until(clock.now() + first).await,
            }
            let Some(scout) = scout.upgrade() else { return };
            scout.ask_silent().await;
            scout.follow().await;
        }
    }

    /// Whether every endpoint is known to be of the engine's cluster.
    fn is_settled(&self) -> bool {
        let clusters = &self.means.clusters;
        self.ring.round().iter().all(|it| clusters.knows(&it.name)) && !clusters.is_mixed()
    }

    /// Asks the endpoints that have not answered yet; while there are two clusters, all that are not in use.
    async fn ask_silent(&self) {
        let mixed = self.means.clusters.is_mixed();
        for endpoint in self.ring.round() {
            let asks = mixed || !self.means.clusters.knows(&endpoint.name);
            if asks && !endpoint.is_connected() && endpoint.connect(false).await.is_ok() {
                endpoint.lose(endpoint.generation());
            }
        }
    }

    /// Reads the member list, and replaces the endpoints by those of the configuration and of the members.
    async fn follow(&self) {
        let Some(configured) = &self.configured else { return };
        for endpoint in self.ring.round() {
            let Ok(connection) = endpoint.connect(false).await else { continue };
            let mut client = connection.client.cluster_client();
            let until = self.means.clock.now() + LIST;
            match by(&*self.means.clock, until, pin!(client.member_list())).await {
                Some(Ok(list)) => {
                    let names: Vec<_> = configured.iter().map(|it| &*it.name).collect();
                    let members = list.members().iter().filter(|it| !it.is_learner());
                    let urls = members.flat_map(|it| it.client_urls()).map(String::as_str);
                    let urls = usable(urls, &names);
                    return self.replace(configured, &urls).await;
                }
                Some(Err(error)) => drop(connection.failed(&error)),
                None => {}
            }
        }
    }

    /// Makes the ring of the configured endpoints and of these members. A new member has to answer first; until then, it is asked
    /// each time that the member list is read.
    async fn replace(&self, configured: &[Arc<Endpoint>], urls: &[String]) {
        let before = self.ring.round();
        let mut endpoints = configured.to_vec();
        for url in urls {
            if let Some(known) = before.iter().find(|it| it.name == *url) {
                endpoints.push(Arc::clone(known));
                continue;
            }
            let target = Target::Urls(vec![url.clone()]);
            let new = Endpoint::new(target, false, &self.means);
            if new.connect(false).await.is_ok() {
                new.lose(new.generation());
                endpoints.push(new);
            }
        }
        let stays = |it: &&Arc<Endpoint>| endpoints.iter().any(|other| Arc::ptr_eq(other, it));
        let gone: Vec<_> = before.iter().filter(|it| !stays(it)).collect();
        if gone.is_empty() && endpoints.len() == before.len() {
            return;
        }
        self.means.endpoints.store(endpoints.len(), Ordering::Relaxed);
        let now: Vec<_> = endpoints.iter().map(|it| it.name.clone()).collect();
        self.ring.replace(endpoints);
        gone.iter().for_each(|endpoint| endpoint.retire());
        tracing::info!(parent: None, endpoints = now.join(","), "etcd's members have changed");
    }
}

impl Drop for Scout {
    fn drop(&mut self) {
        self.wake.notify_one(); // its task ends
    }
}

/// The client URLs of members that are reached as the configured ones are, but for those configured already: of the same scheme, and
/// on this machine only if those are.
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

/// Whether the URL leads to the machine that it is used on: what etcd advertises if it is not configured.
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
