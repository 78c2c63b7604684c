//! The etcds of the tests. Where `ETCD_LOCKED_TESTS_ON` says `embedded` they are in this process, else real processes.

mod embedded;
mod ports;
mod process;
mod tools;

use std::sync::OnceLock;

use etcd_client::{Client, ConnectOptions, Permission, PermissionType};
use etcd_locked::Config;
use tokio::sync::OnceCell;

pub(crate) use self::ports::free_port;
pub(crate) use self::tools::etcdctl;
use crate::authority::Authority;

/// What ends an etcd with the tests that have started it.
const GUARD: &str = env!("CARGO_BIN_EXE_guard");

/// Whether the etcds are embedded.
pub(crate) fn on_embedded() -> bool {
    static EMBEDDED: OnceLock<bool> = OnceLock::new();
    *EMBEDDED.get_or_init(|| match std::env::var("ETCD_LOCKED_TESTS_ON") {
        Ok(word) if word == "embedded" => true,
        Ok(word) => {
            panic!("ETCD_LOCKED_TESTS_ON is `{word}`; write `embedded`, or unset it for real etcds")
        }
        Err(_) => false,
    })
}

/// One etcd member, with a port of its own; gone when dropped.
#[derive(Debug)]
pub(crate) enum Etcd {
    Process(Box<process::Member>),
    Embedded(embedded::Member),
}

impl Etcd {
    /// The server for all tests that do it no harm.
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

    /// A server of one's own.
    pub(crate) async fn start() -> Etcd {
        if on_embedded() {
            Self::Embedded(embedded::Member::start())
        } else {
            Self::start_with(&[]).await
        }
    }

    /// A server of one's own that speaks TLS to clients, with a certificate of this authority.
    pub(crate) async fn start_with_tls(authority: &Authority) -> Etcd {
        Self::start_with(&authority.server_flags()).await
    }

    /// The same, and it wants a certificate of this authority from clients as well.
    pub(crate) async fn start_with_client_certificates(authority: &Authority) -> Etcd {
        let mut flags = authority.server_flags();
        flags.push("--client-cert-auth".to_owned());
        flags.push(format!("--trusted-ca-file={}", authority.file().display()));
        Self::start_with(&flags).await
    }

    /// A server of one's own that refuses writes when its data take more than this many bytes.
    pub(crate) async fn start_with_quota(bytes: u64) -> Etcd {
        Self::start_with(&[format!("--quota-backend-bytes={bytes}")]).await
    }

    async fn start_with(flags: &[String]) -> Etcd {
        assert!(!on_embedded(), "begin the test with `real_etcd_only!()`");
        Self::Process(Box::new(process::Member::start(flags).await))
    }

    /// `host:port` of the clients' side.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Process(member) => member.address(),
            Self::Embedded(member) => member.address(),
        }
    }

    /// What a client is configured with.
    pub(crate) fn endpoint(&self) -> String {
        match self {
            Self::Process(member) => member.endpoint(),
            Self::Embedded(member) => format!("http://{}", member.address()),
        }
    }

    /// How an engine of this process gets there: in memory, where that can be.
    pub(crate) fn config(&self) -> Config {
        match self {
            Self::Process(member) => Config::new([member.endpoint()]),
            Self::Embedded(member) => member.config(),
        }
    }

    /// A client of the test's own, past everything under test.
    pub(crate) async fn client(&self) -> Client {
        self.client_as(None).await
    }

    /// A client that logs in.
    pub(crate) async fn client_as(&self, user: Option<(&str, &str)>) -> Client {
        let options = user.map(|(name, password)| ConnectOptions::new().with_user(name, password));
        Client::connect([self.endpoint()], options)
            .await
            .expect("etcd answers the test's own client")
    }

    /// Ends it at once, data kept.
    pub(crate) fn kill(&mut self) {
        match self {
            Self::Process(member) => member.kill(),
            Self::Embedded(member) => member.kill(),
        }
    }

    /// Starts it again where it was.
    pub(crate) async fn start_again(&mut self) {
        match self {
            Self::Process(member) => member.start_again().await,
            Self::Embedded(member) => member.start_again(),
        }
    }

    /// Ends it and starts it again, data kept.
    pub(crate) async fn restart(&mut self) {
        self.kill();
        self.start_again().await;
    }

    /// Throws its data away; it must not be running.
    pub(crate) fn wipe(&mut self) {
        match self {
            Self::Process(member) => member.wipe(),
            Self::Embedded(member) => member.wipe(),
        }
    }

    /// Saves a snapshot of a real one's data, for `restore`.
    pub(crate) fn save(&self) {
        match self {
            Self::Process(member) => member.save(),
            Self::Embedded(_) => panic!("begin the test with `real_etcd_only!()`"),
        }
    }

    /// Replaces a real one's data by the last snapshot; it must not be running.
    pub(crate) fn restore(&mut self) {
        match self {
            Self::Process(member) => member.restore(),
            Self::Embedded(_) => panic!("begin the test with `real_etcd_only!()`"),
        }
    }

    /// Freezes it: connections stay open, nothing is answered.
    pub(crate) fn stop(&self) {
        match self {
            Self::Process(member) => member.stop(),
            Self::Embedded(member) => member.stop(),
        }
    }

    /// Lets a frozen one go on.
    pub(crate) fn cont(&self) {
        match self {
            Self::Process(member) => member.cont(),
            Self::Embedded(member) => member.cont(),
        }
    }

    /// Switches authentication on: `root` with the password `root`, and a user whose role may use these prefixes.
    pub(crate) async fn enable_auth(&self, user: &str, password: &str, prefixes: &[&str]) {
        let mut client = self.client().await;
        client.user_add("root", "root", None).await.expect("root");
        client.role_add("root").await.expect("root's role");
        client
            .user_grant_role("root", "root")
            .await
            .expect("root's role granted");
        client
            .user_add(user, password, None)
            .await
            .expect("the user");
        client.role_add(user).await.expect("the user's role");
        for prefix in prefixes {
            let permission = Permission::new(PermissionType::Readwrite, *prefix).with_prefix();
            client
                .role_grant_permission(user, permission)
                .await
                .expect("the permission");
        }
        client
            .user_grant_role(user, user)
            .await
            .expect("the user's role granted");
        client.auth_enable().await.expect("authentication on");
    }
}

/// Members that know of one another.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) members: Vec<Etcd>,
}

impl Cluster {
    /// A cluster of this many, with a leader.
    pub(crate) async fn start(size: usize) -> Cluster {
        let members = if on_embedded() {
            let members = embedded::Member::start_cluster(size);
            members.into_iter().map(Etcd::Embedded).collect()
        } else {
            let members = process::Member::start_cluster(size).await;
            let members = members.into_iter().map(Box::new);
            members.map(Etcd::Process).collect()
        };
        Cluster { members }
    }

    /// What a client is configured with.
    pub(crate) fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(Etcd::endpoint).collect()
    }

    /// The place of the leader among the members.
    pub(crate) async fn leader(&self) -> usize {
        for (at, member) in self.members.iter().enumerate() {
            if let Etcd::Embedded(member) = member {
                if member.leads() {
                    return at;
                }
                continue;
            }
            let mut client = member.client().await;
            let status = client.status().await.expect("a member's status");
            if status
                .header()
                .is_some_and(|header| header.member_id() == status.leader())
            {
                return at;
            }
        }
        panic!("no member says that it leads");
    }
}
