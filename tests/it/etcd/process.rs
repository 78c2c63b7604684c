//! Real etcd process that the tests start and end.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use etcd_client::Client;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};

use super::GUARD;
use super::ports::free_port;
use super::tools::{backup, binary, knows_no_fsync};

/// How long etcd may take to answer for the first time.
const READY: Duration = Duration::from_secs(20);

/// One etcd member: a process with ports and a data directory of its own; killed when dropped.
#[derive(Debug)]
pub(crate) struct Member {
    name: String,
    client_port: u16,
    peer_port: u16,
    /// `name=url` of every member, this one included.
    members: String,
    /// Further flags, such as those for TLS.
    extra: Vec<String>,
    scheme: &'static str,
    /// The process. It precedes the directory, because fields drop in this order and a running etcd would recreate its files.
    process: Option<Process>,
    dir: TempDir,
}

/// An etcd below the guard, which kills it when our end of the guard's standard input closes. The guard also removes the
/// directory, unless the test process is still there to do so.
#[derive(Debug)]
struct Process {
    guard: Child,
    pid: Pid,
}

impl Member {
    /// Starts a member that is its own cluster.
    pub(crate) async fn start(flags: &[String]) -> Member {
        for _ in 0..5 {
            let mut member = Self::prepare(flags);
            member.spawn();
            if member.answers().await {
                return member;
            }
        }
        panic!(
            "etcd does not start; `{} --version` may say why",
            binary().display()
        );
    }

    /// Starts a cluster of this many members, each with these further flags.
    pub(crate) async fn start_cluster(size: usize, flags: &[String]) -> Vec<Member> {
        for _ in 0..3 {
            let mut members: Vec<Member> = (0..size).map(|_| Self::prepare(flags)).collect();
            let all = members
                .iter()
                .map(|it| it.members.clone())
                .collect::<Vec<_>>()
                .join(",");
            for member in &mut members {
                member.members = all.clone();
                member.spawn();
            }
            let mut up = true;
            for member in &mut members {
                up &= member.answers().await;
            }
            if up {
                return members;
            }
        }
        panic!("a cluster of {size} does not start");
    }

    /// Removes this member from the cluster that the others are of, and ends it.
    pub(crate) async fn leave(mut self, others: &[&Member]) {
        let mut own = Client::connect([self.endpoint()], None)
            .await
            .expect("etcd answers");
        let status = own.status().await.expect("a member's status");
        let id = status.header().expect("a header").member_id();
        Self::change(others, |mut client| async move {
            client.member_remove(id).await.map(drop)
        })
        .await;
        self.kill();
    }

    /// Starts a member with addresses of its own that joins the cluster of the others.
    pub(crate) async fn join(others: &[&Member], flags: &[String]) -> Member {
        let mut member = Self::prepare(flags);
        member
            .extra
            .push("--initial-cluster-state=existing".to_owned());
        let peer = format!("http://127.0.0.1:{}", member.peer_port);
        Self::change(others, |mut client| {
            let peer = peer.clone();
            async move { client.member_add([peer], None).await.map(drop) }
        })
        .await;
        let all = others
            .iter()
            .map(|it| format!("{}=http://127.0.0.1:{}", it.name, it.peer_port));
        member.members = all.chain([member.members]).collect::<Vec<_>>().join(",");
        member.spawn();
        assert!(member.answers().await, "the new member does not start");
        member
    }

    /// Has one of these members change their cluster. One that has no leader for a moment may never answer, so the next one is
    /// asked; that the change is made already is as good as an answer.
    async fn change<F>(members: &[&Member], change: impl Fn(Client) -> F)
    where
        F: Future<Output = Result<(), etcd_client::Error>>,
    {
        let made = |error: &etcd_client::Error| {
            let text = error.to_string();
            text.contains("member not found") || text.contains("already exists")
        };
        let deadline = Instant::now() + READY;
        for member in members.iter().cycle() {
            assert!(Instant::now() < deadline, "the cluster does not change");
            let attempt = async {
                let client = Client::connect([member.endpoint()], None).await?;
                change(client).await
            };
            match timeout(Duration::from_secs(3), attempt).await {
                Ok(Ok(())) => return,
                Ok(Err(error)) if made(&error) => return,
                other => eprintln!("{}: {other:?}", member.endpoint()),
            }
        }
    }

    /// Prepares everything but the process.
    fn prepare(extra: &[String]) -> Member {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        // The name tells our server from another process's that answers at the same port.
        let name = format!(
            "tests-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let (client_port, peer_port) = (free_port(), free_port());
        Member {
            members: format!("{name}=http://127.0.0.1:{peer_port}"),
            dir: data_dir(),
            scheme: match extra.iter().any(|flag| flag.starts_with("--cert-file=")) {
                true => "https",
                false => "http",
            },
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
        let mut command = Command::new(GUARD);
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
            .env_clear() // etcd reads flags from the environment, too
            .envs(env::var_os("PATH").map(|path| ("PATH", path)))
            .env("ETCD_UNSUPPORTED_ARCH", "arm64") // etcd 3.4 requires this on arm64, and ignores it elsewhere
            .process_group(0) // Ctrl-C reaches the tests only; the guard cleans up after them
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

    /// Awaits the first answer; false if the ports were taken meanwhile, or the process has ended.
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
            match client.get("ready", None).await {
                Ok(_) => {}
                // It has a leader, and wants to know who asks.
                Err(error) if error.to_string().contains("user name is empty") => {
                    return Some(true);
                }
                Err(_) => return None,
            }
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

    /// Returns `host:port` for clients.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.client_port)
    }

    /// Returns the URL for clients.
    pub(crate) fn endpoint(&self) -> String {
        format!("{}://{}", self.scheme, self.address())
    }

    /// Ends the process at once and keeps its data.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.end();
        }
    }

    /// Has the process end as an operator does, and awaits that.
    pub(crate) fn terminate(&mut self) {
        self.signal(Signal::TERM);
        if let Some(mut process) = self.process.take() {
            let open = process.guard.stdin.take(); // closed, it would have the guard kill the process
            let _ = process.guard.wait();
            drop(open);
        }
    }

    /// Starts the process again on the same ports.
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

    /// Deletes the data of a process that does not run.
    pub(crate) fn wipe(&mut self) {
        assert!(self.process.is_none(), "a running etcd cannot be wiped");
        std::fs::remove_dir_all(self.data()).expect("its data can be removed");
    }

    /// Saves a snapshot of its data, for `restore`; it must be running.
    pub(crate) fn save(&self) {
        let _ = std::fs::remove_file(self.snapshot());
        let mut command = backup();
        command
            .args(["--endpoints", &self.endpoint(), "snapshot", "save"])
            .arg(self.snapshot());
        succeeds(&mut command);
    }

    /// Replaces its data by the snapshot; it must not be running.
    pub(crate) fn restore(&mut self) {
        self.wipe();
        let peer = format!("http://127.0.0.1:{}", self.peer_port);
        let mut command = backup();
        command
            .args(["snapshot", "restore"])
            .arg(self.snapshot())
            .args(["--name", &self.name, "--initial-cluster", &self.members])
            .args(["--initial-advertise-peer-urls", &peer])
            .arg("--data-dir")
            .arg(self.data());
        succeeds(&mut command);
    }

    fn snapshot(&self) -> PathBuf {
        self.dir.path().join("snapshot")
    }

    /// Freezes the process: connections stay open, and no request is answered.
    pub(crate) fn stop(&self) {
        freeze(self.process.as_ref().expect("etcd runs").pid);
    }

    /// Resumes a frozen process.
    pub(crate) fn cont(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let process = self.process.as_ref().expect("etcd runs");
        kill_process(process.pid, signal).expect("etcd runs");
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Returns the path of its log.
    pub(crate) fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }
}

/// Runs a program to its end.
fn succeeds(command: &mut Command) {
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{command:?}: {output:?}");
}

impl Process {
    fn end(&mut self) {
        if let Some(mut stdin) = self.guard.stdin.take() {
            // A restart may need the data; otherwise `TempDir` removes it.
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

/// Creates the data directory, in memory if the system has such a place, because etcd waits for the disk at every write.
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

/// Stops a process, and returns once every thread of it has stopped: until then it goes on answering.
pub(crate) fn freeze(pid: Pid) {
    kill_process(pid, Signal::STOP).expect("the process runs");
    while !is_stopped(pid) {
        std::thread::yield_now();
    }
}

fn is_stopped(pid: Pid) -> bool {
    let tasks = format!("/proc/{}/task", pid.as_raw_nonzero());
    let tasks = std::fs::read_dir(tasks).expect("the process runs");
    tasks.flatten().all(|task| {
        // The state follows the name, which ends with the last parenthesis; a thread that has ended has no file.
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ")
            .is_none_or(|(_, rest)| rest.starts_with('T'))
    })
}
