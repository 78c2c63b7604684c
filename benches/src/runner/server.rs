//! An etcd for one row: fresh, on free loopback ports, gone with its data when dropped.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::process::{self, Process};
use crate::{Result, http};

const READY_WITHIN: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    // Before the directory, so that it has ended when that is removed.
    process: Process,
    dir: TempDir,
}

impl Server {
    pub(crate) fn start() -> Result<Self> {
        // Between our check for free ports and etcd's bind another process may take one.
        let mut tries = 3;
        loop {
            let mut server = Self::spawn()?;
            match server.ready() {
                Ok(()) => return Ok(server),
                Err(error) => {
                    tries -= 1;
                    if tries == 0 || process::interrupted() {
                        return Err(error);
                    }
                }
            }
        }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What etcd has counted under this name with this label; nothing yet counts as 0.
    pub(crate) fn metric(&self, name: &str, label: &str) -> Result<f64> {
        let page = http::get(self.address, "/metrics")?;
        if page.status != 200 {
            return Err(format!("etcd answers {} to /metrics", page.status));
        }
        metric(&page.body, name, label)
            .ok_or_else(|| format!("etcd's metric {name} is not a number"))
    }

    fn spawn() -> Result<Self> {
        let io = |error: std::io::Error| format!("no place for etcd's data: {error}");
        let binary = std::env::var_os("ETCD_BIN").map(PathBuf::from).ok_or(
            "ETCD_BIN does not say which etcd to run; `cargo xtask bench` sets it, or `export $(cargo xtask etcd)`",
        )?;
        let dir = tempfile::Builder::new()
            .prefix("etcd-locked-bench")
            .tempdir()
            .map_err(io)?;
        let [address, peer] = free_addresses()?;
        let (client, peer) = (format!("http://{address}"), format!("http://{peer}"));
        let log = File::create(dir.path().join("log")).map_err(io)?;
        let mut command = Command::new(binary);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ETCD_") {
                command.env_remove(name);
            }
        }
        command
            .args(["--name", "bench", "--data-dir"])
            .arg(dir.path().join("data"))
            .args(["--listen-client-urls", &client])
            .args(["--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer])
            .args(["--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("bench={peer}")])
            .args(["--auto-compaction-mode=revision"])
            .args(["--auto-compaction-retention=10000"])
            // It compacts every five minutes; what comes in between at full speed is more than the default of 2 GiB.
            .args(["--quota-backend-bytes=17179869184"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(io)?)
            .stderr(log);
        Ok(Self {
            process: Process::start("etcd", &mut command)?,
            address,
            dir,
        })
    }

    fn ready(&mut self) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < READY_WITHIN {
            if let Some(status) = self.process.ended()? {
                return Err(format!(
                    "etcd has ended with {status}: {}",
                    self.last_words()
                ));
            }
            if http::get(self.address, "/health").is_ok_and(|answer| answer.status == 200) {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(50));
        }
        Err(format!(
            "etcd is not healthy after {READY_WITHIN:?}: {}",
            self.last_words()
        ))
    }

    fn last_words(&self) -> String {
        let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        log.lines()
            .last()
            .unwrap_or("(it has said nothing)")
            .to_owned()
    }
}

/// The sum of the lines of a metrics page with this name and label.
fn metric(page: &str, name: &str, label: &str) -> Option<f64> {
    page.lines()
        .filter_map(|line| line.strip_prefix(name))
        .filter(|rest| rest.starts_with(['{', ' ']) && rest.contains(label))
        .map(|rest| rest.rsplit_once(' ')?.1.parse::<f64>().ok())
        .sum()
}

/// Two that were free at the same time.
fn free_addresses() -> Result<[SocketAddr; 2]> {
    let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let both = || -> std::io::Result<_> {
        let (one, other) = (free()?, free()?);
        Ok([one.local_addr()?, other.local_addr()?])
    };
    both().map_err(|error| format!("no free loopback port: {error}"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_metric_is_found_by_name_and_label() {
        let page = "# HELP got_total …\ngot_total{method=\"Put\",type=\"unary\"} 3\n\
            got_total{method=\"Keep\",type=\"stream\"} 12\ngot_total_more{method=\"Keep\"} 5\nup 1e+06\n";
        assert_eq!(super::metric(page, "got_total", "\"Keep\""), Some(12.0));
        assert_eq!(super::metric(page, "got_total", ""), Some(15.0));
        assert_eq!(super::metric(page, "up", ""), Some(1e6));
        assert_eq!(super::metric(page, "down", ""), Some(0.0));
        assert_eq!(super::metric("odd x", "odd", ""), None);
    }
}
