//! The order service, as the demo runs it.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::process::Process;
use crate::{Result, http, workspace};

/// One process of it, ended when dropped.
#[derive(Debug)]
pub(crate) struct Service {
    process: Process,
    address: SocketAddr,
    // Kept open: the service must be able to print.
    _stdout: BufReader<ChildStdout>,
}

/// What a service says about itself.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub(crate) locks_taken: u64,
    pub(crate) waits: Vec<Duration>,
}

impl Service {
    /// Compiles it; the executable.
    pub(crate) fn build() -> Result<PathBuf> {
        let mut cargo = workspace::cargo();
        cargo
            .args([
                "build",
                "--package",
                "etcd-locked-examples",
                "--bin",
                "order-service",
            ])
            .arg("--message-format=json-render-diagnostics")
            .stdout(Stdio::piped());
        let mut build = Process::start("cargo build", &mut cargo)?;
        let stdout = build
            .streams()
            .stdout
            .take()
            .ok_or("cargo build has no output")?;
        let executable = BufReader::new(stdout)
            .lines()
            .map_while(|line| line.ok())
            .filter_map(|line| executable(&line))
            .last();
        let status = build.wait(Duration::MAX)?;
        if !status.success() {
            return Err(format!("cargo build: {status}"));
        }
        executable.ok_or_else(|| "cargo build names no executable".to_owned())
    }

    pub(crate) fn start(executable: &Path, endpoint: &str, locked: bool) -> Result<Self> {
        let mut command = Command::new(executable);
        command
            .env("ORDER_SERVICE_LISTEN", "127.0.0.1:0")
            .env("ETCD_LOCKED_ENDPOINTS", endpoint)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        if locked {
            command.env_remove("ORDER_SERVICE_UNLOCKED");
        } else {
            command.env("ORDER_SERVICE_UNLOCKED", "1");
        }
        let mut process = Process::start("order-service", &mut command)?;
        let mut stdout = BufReader::new(
            process
                .streams()
                .stdout
                .take()
                .ok_or("order-service has no output")?,
        );
        let mut line = String::new();
        stdout
            .read_line(&mut line)
            .map_err(|error| format!("order-service: {error}"))?;
        let address = line
            .trim()
            .strip_prefix("listening on http://")
            .and_then(|address| address.parse().ok())
            .ok_or("order-service has not come up; its reason is above")?;
        Ok(Self {
            process,
            address,
            _stdout: stdout,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn stats(&self) -> Result<Stats> {
        let body = http::get(self.address, "/stats")?.body;
        parse(&body).ok_or_else(|| format!("order-service has odd statistics: {body}"))
    }

    /// As an orchestrator would: SIGTERM, and it must end well.
    pub(crate) fn stop(mut self) -> Result<()> {
        let status = self.process.terminate(Duration::from_secs(15))?;
        if status.success() {
            Ok(())
        } else {
            Err(format!(
                "order-service does not end well on SIGTERM: {status}"
            ))
        }
    }
}

fn executable(message: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(message).ok()?;
    message.get("executable")?.as_str().map(PathBuf::from)
}

fn parse(body: &str) -> Option<Stats> {
    let body: Value = serde_json::from_str(body).ok()?;
    let waits = body.get("waits_us")?.as_array()?.iter();
    Some(Stats {
        locks_taken: body.get("locks_taken")?.as_u64()?,
        waits: waits
            .map(|wait| wait.as_u64().map(Duration::from_micros))
            .collect::<Option<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    #[test]
    fn statistics_are_whole_or_refused() {
        let stats = super::parse(r#"{"locks_taken":2,"waits_us":[5,7]}"#).expect("statistics");
        assert_eq!(stats.locks_taken, 2);
        assert_eq!(
            stats.waits,
            [Duration::from_micros(5), Duration::from_micros(7)]
        );
        assert!(super::parse(r#"{"locks_taken":2,"waits_us":[5,"x"]}"#).is_none());
    }
}
