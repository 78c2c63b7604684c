//! Corner of an etcd for one test: a separate prefix, engines that use it, and plain reads of the keys below it.

use std::collections::BTreeSet;
use std::future::IntoFuture;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use etcd_client::{Client, GetOptions, KeyValue, SortOrder, SortTarget, WatchOptions};
use etcd_locked::{Config, Drained, Group, Holder, LockError, LockGuard, LockMode, Locks};
use etcd_locked_devkit::Proxy;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::etcd::Etcd;
use crate::limit::{PATIENCE, within};
use crate::worker::Worker;

/// Half of the default, so that tests wait less for a renewal or the end of a lease.
const TTL: Duration = Duration::from_secs(15);

/// Prefix that no other test uses.
pub(crate) struct Corner {
    /// URL of etcd over TCP, for other processes and for proxies.
    pub(crate) endpoint: String,
    pub(crate) prefix: String,
    pub(crate) client: Client,
    /// Configuration with which engines of this process reach etcd.
    reached: Config,
}

/// Key as etcd stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) text: String,
    pub(crate) lease: i64,
    pub(crate) created: i64,
    pub(crate) value: Vec<u8>,
}

impl Corner {
    /// Creates a corner of the shared server.
    pub(crate) async fn new() -> Corner {
        Self::of(Etcd::shared().await).await
    }

    /// Creates a corner of the shared server, with `N` engines.
    pub(crate) async fn with_engines<const N: usize>() -> (Corner, [Locks; N]) {
        let corner = Self::new().await;
        let mut engines = Vec::new();
        for _ in 0..N {
            engines.push(corner.locks().await);
        }
        (corner, engines.try_into().expect("as many"))
    }

    /// Creates a corner of the shared server, and a proxy in front of that server.
    pub(crate) async fn with_proxy() -> (Corner, Proxy) {
        let proxy = Proxy::start(Etcd::shared().await.address());
        (Self::new().await, proxy.expect("a proxy"))
    }

    /// Creates a corner of this server.
    pub(crate) async fn of(etcd: &Etcd) -> Corner {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        Corner {
            endpoint: etcd.endpoint(),
            prefix: format!("corner{}/", NEXT.fetch_add(1, Ordering::Relaxed)),
            client: etcd.client().await,
            reached: etcd.config(),
        }
    }

    /// Returns the configuration of engines in this corner.
    pub(crate) fn config(&self) -> Config {
        self.in_this_corner(self.reached.clone())
    }

    /// Returns the configuration over other endpoints, such as a proxy's.
    pub(crate) fn config_via<const N: usize>(&self, endpoints: [String; N]) -> Config {
        self.in_this_corner(Config::new(endpoints))
    }

    fn in_this_corner(&self, config: Config) -> Config {
        config.prefix(&self.prefix).service("tests").ttl(TTL)
    }

    /// Connects an engine in this corner.
    pub(crate) async fn locks(&self) -> Locks {
        connect(self.config()).await
    }

    /// Connects an engine in this corner, with this TTL.
    pub(crate) async fn locks_with_ttl(&self, ttl: Duration) -> Locks {
        connect(self.config().ttl(ttl)).await
    }

    /// Starts a worker in this corner, with more variables.
    pub(crate) fn worker<const N: usize>(&self, more: [(&str, &str); N]) -> Worker {
        let own = [
            ("ETCD_LOCKED_ENDPOINTS", &*self.endpoint),
            ("ETCD_LOCKED_PREFIX", &self.prefix),
            ("ETCD_LOCKED_TTL", &format!("{}s", TTL.as_secs())),
        ];
        Worker::start(own.into_iter().chain(more))
    }

    /// Returns the directory of a name, whose direct children are the contenders.
    pub(crate) fn below(&self, name: &str) -> String {
        format!("{}{name}/", self.prefix)
    }

    /// Reads the keys below a prefix, oldest first.
    pub(crate) async fn keys(&self, below: &str) -> Vec<Key> {
        self.try_keys(below).await.expect("etcd answers the test's own client")
    }

    /// Reads the contenders for a name, the owner first.
    pub(crate) async fn contenders(&self, name: &str) -> Vec<Key> {
        let below = self.below(name);
        direct(self.keys(&below).await, &below)
    }

    /// Reads the owner's key of a name.
    pub(crate) async fn owner(&self, name: &str) -> Key {
        self.contenders(name).await.remove(0)
    }

    /// Deletes the owner's key of a name, as an operator does.
    pub(crate) async fn take_away(&self, name: &str) {
        let key = self.owner(name).await.text;
        let deleted = self.client.clone().delete(key, None).await;
        deleted.expect("an operator's delete");
    }

    /// Requests the lock from the holder of a name, as `etcd-locked kick` does.
    pub(crate) async fn kick(&self, locks: &Locks, name: &str) {
        let queue = locks.queue(name).await.expect("a read").expect("a holder");
        let key = queue.holders().next().expect("a holder");
        let call = key.holder().and_then(Holder::call);
        let wish = serde_json::json!([key.shown_key(), key.created(), call]).to_string();
        let put = self.client.clone().put(self.session_prefix() + "kick/1", wish, None).await;
        put.expect("an operator's put");
    }

    /// Revokes the lease of the owner of a name, as an operator does; returns it.
    pub(crate) async fn revoke(&self, name: &str) -> i64 {
        let lease = self.owner(name).await.lease;
        let revoked = self.client.clone().lease_revoke(lease).await;
        revoked.expect("an operator's revocation");
        lease
    }

    /// Awaits that a name has this many contenders.
    pub(crate) async fn until_contenders(&self, name: &str, count: usize) -> Vec<Key> {
        let below = self.below(name);
        let what = format!("{count} contenders for `{name}`");
        let wanted = |keys: &[Key]| direct(keys.to_vec(), &below).len() == count;
        direct(self.until(&what, &below, wanted).await, &below)
    }

    /// Awaits that no key of this corner is left, long before a lease could expire.
    pub(crate) async fn until_empty(&self) {
        self.until("no key left", &self.prefix, <[Key]>::is_empty).await;
    }

    /// Reads the session keys of the engines in this corner.
    pub(crate) async fn sessions(&self) -> Vec<Key> {
        self.keys(&self.session_prefix()).await
    }

    /// Returns the prefix of the session keys.
    pub(crate) fn session_prefix(&self) -> String {
        format!("{}%s/", self.prefix.strip_suffix('/').expect("ends with a slash"))
    }

    /// Reads the leases of the contenders for a name.
    pub(crate) async fn leases(&self, name: &str) -> BTreeSet<i64> {
        self.contenders(name).await.into_iter().map(|key| key.lease).collect()
    }

    /// Returns true if etcd still knows a lease.
    pub(crate) async fn lease_lives(&self, lease: i64) -> bool {
        let answer = self.client.clone().lease_time_to_live(lease, None).await;
        answer.expect("etcd answers the test's own client").ttl() > 0
    }

    /// Reads the current revision of etcd.
    pub(crate) async fn revision(&self) -> i64 {
        let answer = self.client.clone().get("nothing", None).await;
        let answer = answer.expect("etcd answers the test's own client");
        answer.header().expect("a header").revision()
    }

    /// Counts the puts and deletes in this corner after a revision, up to now.
    pub(crate) async fn changes_after(&self, revision: i64) -> usize {
        let now = self.revision().await;
        let options = WatchOptions::new().with_prefix().with_start_revision(revision + 1);
        let watch = self.client.clone().watch(self.prefix.as_str(), Some(options)).await;
        let (mut watch, mut changes) = (watch.expect("a watch"), 0);
        // etcd sends past events at once.
        while let Ok(message) = timeout(Duration::from_secs(1), watch.message()).await {
            let message = message.ok().flatten().expect("the watch goes on");
            let until_now = |kv: &KeyValue| kv.mod_revision() <= now;
            changes += message.events().iter().filter(|it| it.kv().is_some_and(until_now)).count();
        }
        changes
    }

    /// Awaits that the keys below a prefix satisfy `wanted`.
    pub(crate) async fn until(
        &self,
        what: &str,
        below: &str,
        wanted: impl Fn(&[Key]) -> bool,
    ) -> Vec<Key> {
        let wait = async {
            loop {
                match self.try_keys(below).await {
                    Ok(keys) if wanted(&keys) => return keys,
                    _ => sleep(Duration::from_millis(10)).await,
                }
            }
        };
        match timeout(PATIENCE, wait).await {
            Ok(keys) => keys,
            Err(_) => panic!(
                "{what}: not within {PATIENCE:?}; there are {:?}",
                self.try_keys(below).await
            ),
        }
    }

    async fn try_keys(&self, below: &str) -> Result<Vec<Key>, etcd_client::Error> {
        let oldest_first =
            GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend);
        let answer = self.client.clone().get(below, Some(oldest_first)).await?;
        let keys = answer.kvs().iter().map(|kv| Key {
            text: String::from_utf8_lossy(kv.key()).into_owned(),
            lease: kv.lease(),
            created: kv.create_revision(),
            value: kv.value().to_vec(),
        });
        Ok(keys.collect())
    }
}

/// Connects an engine.
pub(crate) async fn connect(config: Config) -> Locks {
    within("connecting an engine", Locks::connect(config)).await.expect("the engine connects")
}

/// Takes a lock, and panics if the call is refused.
pub(crate) async fn take<N: Group, M: LockMode>(
    what: &str,
    call: impl IntoFuture<Output = Result<LockGuard<N, M>, LockError>>,
) -> LockGuard<N, M> {
    within(what, call).await.unwrap_or_else(|error| panic!("{what}: {error:?}"))
}

/// Takes a lock and releases it, and panics if either fails.
pub(crate) async fn pass<N: Group, M: LockMode>(
    what: &str,
    call: impl IntoFuture<Output = Result<LockGuard<N, M>, LockError>>,
) {
    let released = take(what, call).await.release();
    within(what, released).await.unwrap_or_else(|error| panic!("{what}, released: {error:?}"));
}

/// Makes a call in a separate task.
pub(crate) fn spawn<C>(call: C) -> JoinHandle<C::Output>
where
    C: IntoFuture<Output: Send + 'static, IntoFuture: Send + 'static>,
{
    tokio::spawn(call.into_future())
}

/// Awaits the lock of such a call, and panics if the call is refused.
pub(crate) async fn admitted<N: Group, M: LockMode>(
    what: &str,
    waiter: JoinHandle<Result<LockGuard<N, M>, LockError>>,
) -> LockGuard<N, M> {
    let ended = within(what, waiter).await.expect("no panic");
    ended.unwrap_or_else(|error| panic!("{what}: {error:?}"))
}

/// Awaits that lock and releases it, and panics if either fails.
pub(crate) async fn served<N: Group, M: LockMode>(
    what: &str,
    waiter: JoinHandle<Result<LockGuard<N, M>, LockError>>,
) {
    let released = admitted(what, waiter).await.release().await;
    released.unwrap_or_else(|error| panic!("{what}, released: {error:?}"));
}

/// Begins a shutdown in a separate task.
pub(crate) fn begin_shutdown(locks: &Locks, grace: Duration) -> JoinHandle<Drained> {
    let locks = locks.clone();
    tokio::spawn(async move { locks.shutdown(grace).await })
}

/// Awaits that a shutdown refuses new calls, even for a free name.
pub(crate) async fn until_refused(locks: &Locks, free: &str) {
    within("a refusal", async {
        while !matches!(locks.lock(free).await, Err(LockError::ShuttingDown)) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

fn direct(keys: Vec<Key>, below: &str) -> Vec<Key> {
    keys.into_iter()
        .filter(|key| key.text.strip_prefix(below).is_some_and(|rest| !rest.contains('/')))
        .collect()
}

/// Makes a call whose wait ends, and returns its refusal. If a busy etcd has not responded by then, the refusal does not name other
/// contenders, and the call is made again.
pub(crate) async fn refused_after_its_wait<T>(
    what: &str,
    call: impl AsyncFn() -> Result<T, LockError>,
) -> LockError {
    loop {
        match within(what, call()).await {
            Err(LockError::Backend { .. }) => {}
            Err(error) => return error,
            Ok(_) => panic!("{what}: served"),
        }
    }
}
