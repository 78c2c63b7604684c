//! Member of an etcd cluster: a process with its own ports and data directory.

use std::collections::BTreeSet;
use std::env;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;

use crate::binary::{etcdctl_of, etcdutl_of, knows_no_fsync, without_settings};
use crate::gateway::{Gateway, User, list, number};
use crate::guard::Guard;
use crate::process::{Process, interrupted, output};
use crate::proxy::Proxy;
use crate::{Result, binary, lock, port, until};

/// How long etcd may take until its first response.
pub(crate) const READY: Duration = Duration::from_secs(30);

/// Setup of a member: which etcd, where its data is, and its flags.
#[derive(Debug, Clone)]
pub struct Setup {
    binary: PathBuf,
    flags: Vec<String>,
    durable: bool,
    direct: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self { binary: binary::etcd(), flags: Vec::new(), durable: false, direct: false }
    }
}

impl Setup {
    /// Uses this etcd instead of the one that [`binary::etcd`] finds.
    pub fn binary(mut self, etcd: impl Into<PathBuf>) -> Self {
        self.binary = etcd.into();
        self
    }

    /// Adds flags, each as `--name=value`. A certificate among them makes the member use TLS with clients.
    pub fn flags(mut self, flags: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.flags.extend(flags.into_iter().map(Into::into));
        self
    }

    /// Makes etcd wait for the disk at every write, as in production. Otherwise its data is in memory if the system can do that.
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// Puts no proxies in front of the members of a cluster, so that a port of a dead member refuses connections.
    pub fn direct(mut self) -> Self {
        self.direct = true;
        self
    }

    /// Starts a member that is a whole cluster, without proxies, and waits until it serves.
    pub fn start(&self) -> Result<Member> {
        thrice(|| {
            let member = Member::prepare(&self.clone().direct())?;
            member.restart().map(|()| member)
        })
    }
}

/// Tries up to three times to start something, because another process may take a free port first.
pub(crate) fn thrice<T>(start: impl Fn() -> Result<T>) -> Result<T> {
    let again = |last: Result<T>| match interrupted() {
        false => last.or_else(|_| start()),
        true => last,
    };
    again(again(start()))
}

/// Member that is killed when dropped.
#[derive(Debug)]
pub struct Member {
    name: String,
    setup: Setup,
    scheme: &'static str,
    client_port: u16,
    peer_port: u16,
    proxies: Option<Proxies>,
    state: Mutex<State>,
    // The last field, because a running etcd would recreate its files.
    place: TempDir,
}

#[derive(Debug)]
struct Proxies {
    client: Proxy,
    peer: Proxy,
}

#[derive(Debug)]
struct State {
    binary: PathBuf,
    /// `name=url` of every member, including this one.
    initial: BTreeSet<String>,
    joins: bool,
    id: Option<u64>,
    /// User as which its gateways log in, if etcd requires one.
    user: Option<User>,
    running: Option<Running>,
}

/// Process and its guard, which is dismissed after the process has ended.
#[derive(Debug)]
struct Running {
    process: Process,
    _guard: Guard,
}

impl Member {
    /// Starts a member with the default setup, which is a whole cluster.
    pub fn start() -> Result<Self> {
        Setup::default().start()
    }

    pub(crate) fn prepare(setup: &Setup) -> Result<Self> {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        // The name distinguishes this member from one of another process that responds at the same port.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("devkit-{}-{number}", std::process::id());
        let (client_port, peer_port) = (port::free(), port::free());
        let proxy = |port| Proxy::start(format!("127.0.0.1:{port}"));
        let proxies = match setup.direct {
            true => None,
            false => Some(Proxies { client: proxy(client_port)?, peer: proxy(peer_port)? }),
        };
        let with_tls = |flag: &String| flag.starts_with("--cert-file=");
        let member = Self {
            name,
            setup: setup.clone(),
            scheme: match setup.flags.iter().any(with_tls) {
                true => "https",
                false => "http",
            },
            client_port,
            peer_port,
            proxies,
            state: Mutex::new(State {
                binary: setup.binary.clone(),
                initial: BTreeSet::new(),
                joins: false,
                id: None,
                user: None,
                running: None,
            }),
            place: place(setup.durable)?,
        };
        lock(&member.state).initial.insert(member.entry());
        Ok(member)
    }

    /// Returns this member's part of `--initial-cluster`.
    pub(crate) fn entry(&self) -> String {
        format!("{}={}", self.name, self.peer_url())
    }

    /// Sets the members of the cluster, before the first start.
    pub(crate) fn found(&self, initial: BTreeSet<String>, joins: bool) {
        let mut state = lock(&self.state);
        state.initial = initial;
        state.joins = joins;
    }

    pub(crate) fn peer_url(&self) -> String {
        match &self.proxies {
            Some(proxies) => proxies.peer.endpoint(),
            None => format!("http://127.0.0.1:{}", self.peer_port),
        }
    }

    /// Returns the proxy in front of the client port, which members of a [`Cluster`](crate::Cluster) have, unless its setup is direct.
    pub fn client_proxy(&self) -> Option<&Proxy> {
        self.proxies.as_ref().map(|proxies| &proxies.client)
    }

    /// Returns the proxy in front of the peer port, which members of a [`Cluster`](crate::Cluster) have, unless its setup is direct.
    pub fn peer_proxy(&self) -> Option<&Proxy> {
        self.proxies.as_ref().map(|proxies| &proxies.peer)
    }

    /// Returns `host:port` for clients: the proxy's, if there is one.
    pub fn address(&self) -> String {
        match &self.proxies {
            Some(proxies) => proxies.client.address().to_string(),
            None => self.direct().to_string(),
        }
    }

    /// Returns the URL for clients: the proxy's, if there is one.
    pub fn endpoint(&self) -> String {
        format!("{}://{}", self.scheme, self.address())
    }

    /// Returns the address for clients without a proxy.
    pub fn direct(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.client_port))
    }

    /// Returns the address for other members without a proxy.
    pub fn direct_peer(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.peer_port))
    }

    /// Returns a plain client of this member, past any proxy.
    pub fn gateway(&self) -> Gateway {
        Gateway::new(self.direct()).user(lock(&self.state).user.clone())
    }

    pub(crate) fn login(&self, name: &str, password: &str) {
        lock(&self.state).user = Some(User::new(name, password));
    }

    /// Returns the member's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the member's id; `None` before it has served once, or with TLS.
    pub fn id(&self) -> Option<u64> {
        lock(&self.state).id
    }

    /// Starts the process without waiting until it serves, which needs a quorum.
    pub fn launch(&self) -> Result<()> {
        let mut state = lock(&self.state);
        if state.running.is_some() {
            return Err(format!("etcd {} runs", self.name));
        }
        let started = Process::start("etcd", &mut self.command(&state)?);
        let mut process =
            started.map_err(|error| format!("{error}; `cargo xtask test` brings etcd"))?;
        let guard = Guard::over(process.pid(), self.place.path());
        state.running =
            Some(Running { _guard: guard.inspect_err(|_| drop(process.kill()))?, process });
        Ok(())
    }

    fn command(&self, state: &State) -> Result<Command> {
        let listen = format!("{}://{}", self.scheme, self.direct());
        let listen_peer = format!("http://127.0.0.1:{}", self.peer_port);
        let (advertise, advertise_peer) = (self.endpoint(), self.peer_url());
        let initial = Vec::from_iter(state.initial.iter().map(String::as_str)).join(",");
        let io = |error: std::io::Error| format!("etcd's log: {error}");
        let mut log = OpenOptions::new();
        let log = log.append(true).create(true).open(self.log());
        let log = log.map_err(io)?;
        let mut command = without_settings(&state.binary, "ETCD_");
        command
            .args(["--name", &self.name, "--initial-cluster", &initial])
            .args(["--listen-client-urls", &listen])
            .args(["--advertise-client-urls", &advertise])
            .args(["--listen-peer-urls", &listen_peer])
            .args(["--initial-advertise-peer-urls", &advertise_peer])
            .args(["--log-level", "error"])
            .arg("--data-dir")
            .arg(self.data())
            .args(&self.setup.flags)
            .process_group(0) // Ctrl-C reaches only the program that started it, which ends it
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(io)?)
            .stderr(log);
        if state.joins {
            command.arg("--initial-cluster-state=existing");
        }
        if !knows_no_fsync(&state.binary) {
            // 3.4 requires this on arm64, and ignores it elsewhere.
            command.env("ETCD_UNSUPPORTED_ARCH", "arm64");
        } else if !self.setup.durable {
            command.arg("--unsafe-no-fsync");
        }
        Ok(command)
    }

    /// Waits until it serves: it has a leader, and the response does not come from another process at its port.
    pub fn ready(&self) -> Result<()> {
        let mut ended = None;
        let served = until("etcd serves", READY, || {
            ended = self.ended();
            ended.is_some() || self.serves()
        });
        match ended {
            None => served.map_err(|error| format!("{error}: {}", self.last_words())),
            Some(how) => Err(format!("etcd has ended: {how}: {}", self.last_words())),
        }
    }

    fn ended(&self) -> Option<String> {
        let mut state = lock(&self.state);
        let Some(running) = &mut state.running else {
            return Some("it was not started".to_owned());
        };
        match running.process.ended() {
            Ok(status) => status.map(|status| status.to_string()),
            Err(error) => Some(error),
        }
    }

    fn serves(&self) -> bool {
        if self.scheme == "https" {
            return speaks_tls(self.direct());
        }
        let gateway = self.gateway().limit(Duration::from_secs(1));
        match gateway.get("ready") {
            Ok(_) => {}
            // It has a leader, and requires a login.
            Err(error) if error.contains("user name is empty") => return true,
            Err(_) => return false,
        }
        let answer = gateway.call("cluster/member/list", &json!({})).unwrap_or_default();
        let own = list(&answer["members"]).iter().find(|member| member["name"] == *self.name);
        own.is_some_and(|member| {
            lock(&self.state).id = Some(number(&member["ID"]));
            true
        })
    }

    /// Ends the process at once, frozen or not, and keeps its data.
    pub fn kill(&self) -> Result<()> {
        self.end(Process::kill)
    }

    /// Ends the process as an operator does, and waits for its end.
    pub fn terminate(&self) -> Result<()> {
        self.end(|process| process.terminate(READY).map(drop))
    }

    fn end(&self, end: impl FnOnce(&mut Process) -> Result<()>) -> Result<()> {
        let mut state = lock(&self.state);
        state.running.as_mut().map_or(Ok(()), |running| end(&mut running.process))?;
        state.running = None;
        Ok(())
    }

    /// Freezes the process: connections stay open, and it does not respond. Returns after all of its threads have stopped.
    pub fn stop(&self) -> Result<()> {
        lock(&self.state).running.as_mut().ok_or("etcd does not run")?.process.stop()
    }

    /// Resumes a frozen process.
    pub fn cont(&self) -> Result<()> {
        lock(&self.state).running.as_mut().ok_or("etcd does not run")?.process.cont();
        Ok(())
    }

    /// Ends the process if it runs, starts it again on its data, and waits until it serves.
    pub fn restart(&self) -> Result<()> {
        self.kill()?;
        self.launch()?;
        self.ready()
    }

    /// Restarts it as another version of etcd.
    pub fn restart_with(&self, binary: impl Into<PathBuf>) -> Result<()> {
        self.kill()?;
        lock(&self.state).binary = binary.into();
        self.restart()
    }

    /// Deletes the data of a member that does not run. In a larger cluster, the data of all members must be deleted.
    pub fn wipe(&self) -> Result<()> {
        if lock(&self.state).running.is_some() {
            return Err("a running etcd cannot be wiped".to_owned());
        }
        fs::remove_dir_all(self.data()).map_err(|error| format!("etcd's data: {error}"))
    }

    /// Saves a snapshot of the data of a running member into a new file.
    pub fn snapshot(&self, file: &Path) -> Result<()> {
        let mut ctl = self.tool(etcdctl_of);
        ctl.args(["--endpoints", &format!("{}://{}", self.scheme, self.direct())])
            .args(["snapshot", "save"])
            .arg(file);
        if let Some(user) = &lock(&self.state).user {
            ctl.args(["--user", &user.text()]);
        }
        output(&mut ctl).map(drop)
    }

    /// Replaces the data of a member that does not run with a snapshot. In a larger cluster, all members must get it.
    pub fn restore(&self, file: &Path) -> Result<()> {
        self.wipe()?;
        let initial = Vec::from_iter(lock(&self.state).initial.clone()).join(",");
        let mut tool = self.tool(etcdutl_of);
        tool.args(["snapshot", "restore"])
            .arg(file)
            .args(["--name", &self.name, "--initial-cluster", &initial])
            .args(["--initial-advertise-peer-urls", &self.peer_url()])
            .arg("--data-dir")
            .arg(self.data());
        output(&mut tool).map(drop)
    }

    fn tool(&self, find: fn(&Path) -> PathBuf) -> Command {
        without_settings(&find(&lock(&self.state).binary), "ETCDCTL_")
    }

    fn data(&self) -> PathBuf {
        self.place.path().join("data")
    }

    /// Returns the path of a file next to the data, which is deleted with the member.
    pub fn file(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Returns the path of its log.
    pub fn log(&self) -> PathBuf {
        self.file("log")
    }

    fn last_words(&self) -> String {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        log.lines().last().unwrap_or("no log").to_owned()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Returns true if a TLS server is behind this port, because it ends a connection that does not begin as TLS. A server that only
/// listens so far stays silent.
fn speaks_tls(address: SocketAddr) -> bool {
    let asked = TcpStream::connect(address).and_then(|mut stream| {
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"no TLS\r\n\r\n")?;
        stream.read(&mut [0; 8])
    });
    let absent = [ErrorKind::ConnectionRefused, ErrorKind::WouldBlock, ErrorKind::TimedOut];
    !asked.is_err_and(|error| absent.contains(&error.kind()))
}

/// Creates the directory of a member. It is in memory if the system can do that, unless etcd must wait for the disk.
fn place(durable: bool) -> Result<TempDir> {
    let memory = Path::new("/dev/shm");
    let parent = match !durable && memory.is_dir() {
        true => memory.to_path_buf(),
        false => env::temp_dir(),
    };
    tempfile::Builder::new()
        .prefix("etcd-locked-")
        .tempdir_in(parent)
        .map_err(|error| format!("no place for etcd's data: {error}"))
}
