//! etcds of the tests: real processes, or embedded ones with `LOCK_TESTS_ON=embedded`.

mod embedded;

use std::sync::{Arc, OnceLock};

use etcd_client::{Client, ConnectOptions};
use etcd_locked::Config;
use etcd_locked_devkit::{Member, Setup};
use tokio::sync::OnceCell;

pub(crate) use etcd_locked_devkit::binary::etcdctl;
pub(crate) use etcd_locked_devkit::port::free as free_port;

use crate::authority::Authority;
use crate::limit::blocking;

/// Returns true if the etcds are embedded.
pub(crate) fn on_embedded() -> bool {
    static EMBEDDED: OnceLock<bool> = OnceLock::new();
    *EMBEDDED.get_or_init(|| match std::env::var("LOCK_TESTS_ON") {
        Ok(word) if word == "embedded" => true,
        Ok(word) => {
            panic!("LOCK_TESTS_ON is `{word}`; write `embedded`, or unset it for real etcds")
        }
        Err(_) => false,
    })
}

/// One etcd member with its own port; ended when dropped.
#[derive(Debug)]
pub(crate) enum Etcd {
    Process(Arc<Member>),
    Embedded(Box<embedded::Member>),
}

/// Name and password of the user with all rights.
pub(crate) const ROOT: (&str, &str) = ("root", "root");

impl Etcd {
    /// Returns the server shared by all tests that neither kill nor freeze it.
    pub(crate) async fn shared() -> &'static Etcd {
        static SHARED: OnceCell<Etcd> = OnceCell::const_new();
        SHARED
            .get_or_init(|| async {
                match Etcd::start().await {
                    Self::Embedded(member) => Self::Embedded(member.unharmed()),
                    process => process,
                }
            })
            .await
    }

    /// Starts a server for one test.
    pub(crate) async fn start() -> Etcd {
        if on_embedded() {
            Self::Embedded(embedded::Member::start())
        } else {
            Self::start_with(&[]).await
        }
    }

    /// Starts a server for one test that speaks TLS to clients, with a certificate of this authority.
    pub(crate) async fn start_with_tls(authority: &Authority) -> Etcd {
        Self::start_with(&authority.server_flags()).await
    }

    /// Starts a server with TLS that also requires clients to present a certificate of this authority.
    pub(crate) async fn start_with_client_certificates(authority: &Authority) -> Etcd {
        let mut flags = authority.server_flags();
        flags.push("--client-cert-auth".to_owned());
        flags.push(format!("--trusted-ca-file={}", authority.file().display()));
        Self::start_with(&flags).await
    }

    /// Starts a server for one test that refuses writes when its data takes more than this many bytes.
    pub(crate) async fn start_with_quota(bytes: u64) -> Etcd {
        Self::start_with(&[format!("--quota-backend-bytes={bytes}")]).await
    }

    /// Starts a server with these flags.
    pub(crate) async fn start_with(flags: &[String]) -> Etcd {
        assert!(!on_embedded(), "begin the test with `real_etcd_only!`");
        let setup = Setup::default().flags(flags);
        Self::Process(Arc::new(blocking(move || setup.start()).await))
    }

    /// Returns `host:port` for clients.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Process(member) => member.address(),
            Self::Embedded(member) => member.address(),
        }
    }

    /// Returns the URL for clients.
    pub(crate) fn endpoint(&self) -> String {
        match self {
            Self::Process(member) => member.endpoint(),
            Self::Embedded(member) => format!("http://{}", member.address()),
        }
    }

    /// Returns the configuration for engines of this process: in memory if the etcd is embedded.
    pub(crate) fn config(&self) -> Config {
        match self {
            Self::Process(member) => Config::new([member.endpoint()]),
            Self::Embedded(member) => member.config(),
        }
    }

    /// Connects a client for the test itself, which does not use anything under test.
    pub(crate) async fn client(&self) -> Client {
        self.client_as(None).await
    }

    /// Connects a client that logs in.
    pub(crate) async fn client_as(&self, user: Option<(&str, &str)>) -> Client {
        let options = user.map(|(name, password)| ConnectOptions::new().with_user(name, password));
        Client::connect([self.endpoint()], options)
            .await
            .expect("etcd answers the test's own client")
    }

    /// Ends the etcd at once and keeps its data.
    pub(crate) fn kill(&mut self) {
        match self {
            Self::Process(member) => member.kill().expect("etcd ends"),
            Self::Embedded(member) => member.kill(),
        }
    }

    /// Returns the process of a real etcd.
    fn process(&self) -> &Member {
        match self {
            Self::Process(member) => member,
            Self::Embedded(_) => panic!("begin the test with `real_etcd_only!`"),
        }
    }

    /// Starts the etcd again on the same port.
    pub(crate) async fn start_again(&mut self) {
        match self {
            Self::Process(member) => {
                let member = Arc::clone(member);
                blocking(move || member.restart()).await;
            }
            Self::Embedded(member) => member.start_again(),
        }
    }

    /// Ends the etcd and starts it again with its data.
    pub(crate) async fn restart(&mut self) {
        self.kill();
        self.start_again().await;
    }

    /// Deletes the data of an etcd that does not run.
    pub(crate) fn wipe(&mut self) {
        match self {
            Self::Process(member) => member.wipe().expect("etcd's data go"),
            Self::Embedded(member) => member.wipe(),
        }
    }

    /// Saves a snapshot of a real etcd's data, for `restore`.
    pub(crate) fn save(&self) {
        let file = self.process().file("snapshot");
        let _ = std::fs::remove_file(&file); // of an earlier call
        self.process().snapshot(&file).expect("a snapshot");
    }

    /// Replaces a real etcd's data with the last snapshot. It must not be running.
    pub(crate) fn restore(&mut self) {
        let file = self.process().file("snapshot");
        self.process().restore(&file).expect("a restore");
    }

    /// Freezes the etcd: connections stay open, and it does not respond.
    pub(crate) fn stop(&self) {
        match self {
            Self::Process(member) => member.stop().expect("etcd runs"),
            Self::Embedded(member) => member.stop(),
        }
    }

    /// Resumes a frozen etcd.
    pub(crate) fn cont(&self) {
        match self {
            Self::Process(member) => member.cont().expect("etcd runs"),
            Self::Embedded(member) => member.cont(),
        }
    }

    /// Enables authentication, with [`ROOT`] and a user whose role may use these prefixes.
    pub(crate) async fn enable_auth(&self, user: &str, password: &str, prefixes: &[&str]) {
        let gateway = self.process().gateway();
        let enable = || {
            gateway.add_user(ROOT.0, ROOT.1, &[])?;
            gateway.add_user(user, password, prefixes)?;
            gateway.enable_auth()
        };
        enable().expect("authentication on");
    }
}

/// Members of one cluster of real etcds; tests with one begin with `real_etcd_only!`.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) members: Vec<Etcd>,
    /// `None` only while a member is replaced.
    real: Option<etcd_locked_devkit::Cluster>,
}

impl Cluster {
    /// Starts a cluster of this many members and awaits its leader.
    pub(crate) async fn start(size: usize) -> Cluster {
        Self::start_with(size, Setup::default()).await
    }

    /// Starts a cluster of members that may be replaced one right after another.
    pub(crate) async fn start_replaceable(size: usize) -> Cluster {
        // Without the flag, etcd wants every member connected for five seconds before the next change.
        let setup = Setup::default().flags(["--strict-reconfig-check=false"]);
        Self::start_with(size, setup).await
    }

    async fn start_with(size: usize, setup: Setup) -> Cluster {
        assert!(!on_embedded(), "begin the test with `real_etcd_only!`");
        let start = move || etcd_locked_devkit::Cluster::start_with(size, setup.direct());
        Self::of(blocking(start).await)
    }

    /// Starts a cluster of members that can be cut off from each other.
    pub(crate) async fn start_separable(size: usize) -> Cluster {
        Self::of(blocking(move || etcd_locked_devkit::Cluster::start(size)).await)
    }

    /// Cuts off the member at this index from all others, but not from clients.
    pub(crate) fn isolate(&self, at: usize) {
        self.real().isolate(at).expect("a member behind proxies");
    }

    /// Ends the isolation of every member.
    pub(crate) fn heal(&self) {
        self.real().heal();
    }

    fn of(real: etcd_locked_devkit::Cluster) -> Cluster {
        let members = real.members().iter().cloned();
        Cluster { members: members.map(Etcd::Process).collect(), real: Some(real) }
    }

    /// Makes another member lead, as an operator would. Then replaces the member at this index with one at another address.
    pub(crate) async fn replace(&mut self, at: usize) {
        let mut real = self.real.take().expect("no other replacement");
        self.members.clear();
        let next = (at + 1) % real.members().len();
        let replaced = move || {
            real.lead(next)?;
            real.replace(at).map(|()| real)
        };
        *self = Self::of(blocking(replaced).await);
    }

    /// Returns the URLs of all members.
    pub(crate) fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(Etcd::endpoint).collect()
    }

    /// Returns the index of the leader in `members`.
    pub(crate) fn leader(&self) -> usize {
        self.real().await_leader().expect("a member leads")
    }

    /// Makes the member at this index lead.
    pub(crate) fn lead(&self, at: usize) {
        self.real().lead(at).expect("it leads");
    }

    fn real(&self) -> &etcd_locked_devkit::Cluster {
        self.real.as_ref().expect("no replacement under way")
    }
}
