//! Real etcd processes, started and ended by the tests.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use etcd_client::{Client, ConnectOptions, Permission, PermissionType};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep, timeout};

use crate::authority::Authority;

/// How long etcd may take to answer for the first time.
const READY: Duration = Duration::from_secs(20);

/// One etcd member: a process of ours with its own ports and its own data directory; killed when dropped.
#[derive(Debug)]
pub(crate) struct Etcd {
    name: String,
    client_port: u16,
    peer_port: u16,
    /// `name=url` of every member, this one included.
    members: String,
    /// Further flags, for TLS.
    extra: Vec<String>,
    scheme: &'static str,
    /// Before the directory: fields are dropped in this order, and a running etcd would write it anew.
    process: Option<Process>,
    dir: TempDir,
}

/// etcd below the guard, which kills it when our end of its standard input closes, and removes its directory if nobody
/// is left to do so: when the test process has ended, or was killed.
#[derive(Debug)]
struct Process {
    guard: Child,
    pid: Pid,
}

impl Etcd {
    /// The server for all tests that do it no harm.
    pub(crate) async fn shared() -> &'static Etcd {
        static SHARED: OnceCell<Etcd> = OnceCell::const_new();
        SHARED.get_or_init(Etcd::start).await
    }

    /// A server of one's own.
    pub(crate) async fn start() -> Etcd {
        Self::start_with(&[]).await
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

    async fn start_with(extra: &[String]) -> Etcd {
        for _ in 0..5 {
            let mut etcd = Self::prepare(extra);
            etcd.spawn();
            if etcd.answers().await {
                return etcd;
            }
        }
        panic!(
            "etcd does not start; `{} --version` may say why",
            binary().display()
        );
    }

    /// Everything but the process.
    fn prepare(extra: &[String]) -> Etcd {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        // The name says whose server answers at a port; without it a stranger's could be taken for ours.
        let name = format!(
            "tests-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let (client_port, peer_port) = (free_port(), free_port());
        Etcd {
            members: format!("{name}=http://127.0.0.1:{peer_port}"),
            dir: data_dir(),
            scheme: if extra.is_empty() { "http" } else { "https" },
            extra: extra.to_vec(),
            process: None,
            name,
            client_port,
            peer_port,
        }
    }

    fn spawn(&mut self) {
        let client = format!("{}://127.0.0.1:{}", self.scheme, self.client_port);
        let peer = format!("http://127.0.0.1:{}", self.peer_port);
        let log = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(self.log())
            .expect("etcd's log");
        let mut command = Command::new(env!("CARGO_BIN_EXE_guard"));
        command
            .arg(self.dir.path())
            .arg(binary())
            .args(["--name", &self.name, "--initial-cluster", &self.members])
            .args([
                "--listen-client-urls",
                &client,
                "--advertise-client-urls",
                &client,
            ])
            .args([
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
            ])
            .args(["--log-level", "error"])
            .arg("--data-dir")
            .arg(self.data())
            .args(&self.extra)
            .env_clear() // it takes flags from there, too
            .envs(env::var_os("PATH").map(|path| ("PATH", path)))
            .env("ETCD_UNSUPPORTED_ARCH", "arm64") // 3.4 asks for this there, and ignores it elsewhere
            .process_group(0) // a Ctrl-C is for the tests; the guard cleans up after them
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log);
        if knows_no_fsync() {
            command.arg("--unsafe-no-fsync");
        }
        let mut guard = command.spawn().expect("the guard starts");
        let mut line = String::new();
        let stdout = guard.stdout.take().expect("piped");
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("the guard says etcd's process id");
        let pid = line
            .trim()
            .parse()
            .ok()
            .and_then(Pid::from_raw)
            .unwrap_or_else(|| {
                panic!(
                    "`{}` does not run; run `cargo xtask test`, which brings etcd, or set ETCD_BIN",
                    binary().display()
                )
            });
        self.process = Some(Process { guard, pid });
    }

    /// Whether it came up; no: the ports were taken meanwhile, or the process has ended.
    async fn answers(&mut self) -> bool {
        let deadline = Instant::now() + READY;
        while Instant::now() < deadline {
            let running = self
                .process
                .as_mut()
                .is_some_and(|it| matches!(it.guard.try_wait(), Ok(None)));
            if !running {
                return false;
            }
            if self.is_ready().await {
                return true;
            }
            sleep(Duration::from_millis(20)).await;
        }
        false
    }

    async fn is_ready(&self) -> bool {
        if self.scheme == "https" {
            return tokio::net::TcpStream::connect(("127.0.0.1", self.client_port))
                .await
                .is_ok();
        }
        let attempt = async {
            let mut client = Client::connect([self.endpoint()], None).await.ok()?;
            // A linearizable read: with a leader, not just a listening port.
            client.get("ready", None).await.ok()?;
            let members = client.member_list().await.ok()?;
            Some(
                members
                    .members()
                    .iter()
                    .any(|member| member.name() == self.name),
            )
        };
        timeout(Duration::from_secs(1), attempt)
            .await
            .is_ok_and(|it| it == Some(true))
    }

    /// `host:port` of the clients' side.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.client_port)
    }

    /// What a client is configured with.
    pub(crate) fn endpoint(&self) -> String {
        format!("{}://{}", self.scheme, self.address())
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

    /// Ends the process at once, data kept.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.end();
        }
    }

    /// Starts it again where it was.
    pub(crate) async fn start_again(&mut self) {
        for _ in 0..5 {
            self.kill();
            self.spawn();
            if self.answers().await {
                return;
            }
        }
        panic!("etcd does not start again");
    }

    /// Ends the process and starts it again, data kept.
    pub(crate) async fn restart(&mut self) {
        self.kill();
        self.start_again().await;
    }

    /// Throws its data away; it must not be running.
    pub(crate) fn wipe(&mut self) {
        assert!(self.process.is_none(), "a running etcd cannot be wiped");
        std::fs::remove_dir_all(self.data()).expect("its data can be removed");
    }

    /// Freezes the process: connections stay open, nothing is answered.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets a frozen process go on.
    pub(crate) fn cont(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let process = self.process.as_ref().expect("etcd runs");
        kill_process(process.pid, signal).expect("etcd runs");
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

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// The file with what it says.
    pub(crate) fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }
}

impl Process {
    fn end(&mut self) {
        if let Some(mut stdin) = self.guard.stdin.take() {
            // Its data may be wanted again; when not, the directory's owner removes it.
            let _ = stdin.write_all(b"keep");
        }
        let _ = self.guard.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
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
        for _ in 0..3 {
            let mut members: Vec<Etcd> = (0..size).map(|_| Etcd::prepare(&[])).collect();
            let everyone = members
                .iter()
                .map(|it| it.members.clone())
                .collect::<Vec<_>>()
                .join(",");
            for member in &mut members {
                member.members = everyone.clone();
                member.spawn();
            }
            let mut up = true;
            for member in &mut members {
                up &= member.answers().await;
            }
            if up {
                return Cluster { members };
            }
        }
        panic!("a cluster of {size} does not start");
    }

    /// What a client is configured with.
    pub(crate) fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(Etcd::endpoint).collect()
    }

    /// The place of the leader among the members.
    pub(crate) async fn leader(&self) -> usize {
        for (at, member) in self.members.iter().enumerate() {
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

/// A port of loopback that is free now, below the range from which outgoing connections take theirs: a server that is
/// started again finds it free again.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Different processes begin at different places.
    let start = (std::process::id() % 1_000) as u16 * 10;
    loop {
        let port = 20_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % 12_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// In memory where there is such a place: etcd waits for the disk at every write.
fn data_dir() -> TempDir {
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() {
        memory.to_path_buf()
    } else {
        env::temp_dir()
    };
    tempfile::Builder::new()
        .prefix("etcd-locked-")
        .tempdir_in(place)
        .expect("a temporary directory")
}

/// The etcd to test with.
fn binary() -> PathBuf {
    tool("ETCD_BIN", "etcd")
}

/// The `etcdctl` to contend with: 3.5 or later if there is one, because 3.4 runs its command although its lease is gone.
pub(crate) fn etcdctl() -> PathBuf {
    match env::var_os("ETCDCTL_35") {
        Some(path) => path.into(),
        None => tool("ETCDCTL_BIN", "etcdctl"),
    }
}

/// From the environment, else what `cargo xtask` has unpacked, else whatever PATH has.
fn tool(variable: &str, name: &str) -> PathBuf {
    if let Some(path) = env::var_os(variable) {
        return path.into();
    }
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/etcd");
    find(&unpacked, name).unwrap_or_else(|| name.into())
}

/// A file of this name below a directory; the first in the order of paths, which is `current` before `distribution`.
fn find(dir: &Path, name: &str) -> Option<PathBuf> {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(dir)
        .ok()?
        .flatten()
        .map(|it| it.path())
        .collect();
    entries.sort();
    entries.into_iter().find_map(|path| {
        if path.is_dir() {
            find(&path, name)
        } else {
            path.file_name()
                .is_some_and(|it| it == name)
                .then_some(path)
        }
    })
}

/// Whether this version can be told not to wait for the disk (3.5 can).
fn knows_no_fsync() -> bool {
    static KNOWS: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *KNOWS.get_or_init(|| {
        let help = Command::new(binary()).arg("--help").output();
        help.is_ok_and(|it| {
            String::from_utf8_lossy(&[it.stdout, it.stderr].concat()).contains("--unsafe-no-fsync")
        })
    })
}
