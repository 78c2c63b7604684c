//! etcd server for one run: on free loopback ports, with a data directory that is removed after it.

use std::env;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::etcd::Etcd;
use crate::process::{Process, output};
use crate::{Result, http};

const READY_WITHIN: Duration = Duration::from_secs(30);

/// A running server, which ends when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    etcd: Etcd,
    address: SocketAddr,
    // Before the directory, so that the process has ended when the directory is removed.
    process: Process,
    dir: TempDir,
}

impl Server {
    pub(crate) fn start(etcd: &Etcd) -> Result<Self> {
        // Another process may take a free port before etcd binds it.
        let mut tries = 3;
        loop {
            let mut server = Self::spawn(etcd)?;
            match server.ready() {
                Ok(()) => return Ok(server),
                Err(error) => {
                    tries -= 1;
                    if tries == 0 || crate::process::interrupted() {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Returns the value for `ETCD_LOCKED_ENDPOINTS`.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Makes a command of this etcd's `etcdctl`, on this server.
    pub(crate) fn ctl(&self) -> Command {
        self.ctl_of(&self.etcd)
    }

    /// Makes a command of another etcd's `etcdctl`, on this server.
    pub(crate) fn ctl_of(&self, etcd: &Etcd) -> Command {
        let mut ctl = without_settings(&etcd.ctl, "ETCDCTL_");
        ctl.env("ETCDCTL_API", "3")
            .arg("--endpoints")
            .arg(self.endpoint());
        ctl
    }

    /// Reads the keys that begin with `prefix`.
    pub(crate) fn keys(&self, prefix: &str) -> Result<Vec<String>> {
        let keys = output(self.ctl().args(["get", "--prefix", "--keys-only", prefix]))?;
        Ok(keys
            .lines()
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
            .collect())
    }

    fn spawn(etcd: &Etcd) -> Result<Self> {
        let io = |error: std::io::Error| format!("no place for etcd's data: {error}");
        let dir = tempfile::tempdir().map_err(io)?;
        let [address, peer] = free_addresses()?;
        let (client, peer) = (format!("http://{address}"), format!("http://{peer}"));
        let log = File::create(dir.path().join("log")).map_err(io)?;
        let mut command = without_settings(&etcd.server, "ETCD_");
        command
            .args(["--name", "demo", "--data-dir"])
            .arg(dir.path().join("data"))
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
            .args(["--initial-cluster", &format!("demo={peer}")])
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(io)?)
            .stderr(log);
        let process = Process::start("etcd", &mut command)?;
        Ok(Self {
            etcd: etcd.clone(),
            address,
            process,
            dir,
        })
    }

    fn ready(&mut self) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < READY_WITHIN {
            if let Some(status) = self.process.ended()? {
                return Err(format!(
                    "etcd has ended with {status}: {}",
                    self.last_line()
                ));
            }
            if http::get(self.address, "/health").is_ok_and(|answer| answer.status == 200) {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(50));
        }
        Err(format!(
            "etcd is not healthy after {READY_WITHIN:?}: {}",
            self.last_line()
        ))
    }

    fn last_line(&self) -> String {
        let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        log.lines()
            .last()
            .unwrap_or("(it has said nothing)")
            .to_owned()
    }
}

/// Makes a command without the user's variables of this prefix, from which the program reads settings.
fn without_settings(program: &std::path::Path, prefix: &str) -> Command {
    let mut command = Command::new(program);
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with(prefix)) {
        command.env_remove(name);
    }
    command
}

/// Finds two addresses that were free at the same time.
fn free_addresses() -> Result<[SocketAddr; 2]> {
    let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let both = || -> std::io::Result<_> {
        let (one, other) = (free()?, free()?);
        Ok([one.local_addr()?, other.local_addr()?])
    };
    both().map_err(|error| format!("no free loopback port: {error}"))
}
