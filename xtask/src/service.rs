//! Order service of the demo: its processes, and its HTTP interface.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use etcd_locked_devkit::binary::without_settings;
use serde_json::Value;

use crate::process::{Printed, Process};
use crate::{Result, http};

/// Package and binary of the order service.
pub(crate) const BINARY: (&str, &str) = ("etcd-locked-examples", "order-service");

/// One process of the order service, which ends when dropped.
#[derive(Debug)]
pub(crate) struct Service {
    process: Process,
    address: SocketAddr,
    // Kept open: the service must be able to print.
    _stdout: Printed,
}

impl Service {
    pub(crate) fn start(executable: &Path, endpoint: &str, locked: bool) -> Result<Self> {
        // The user's settings are those of another etcd.
        let mut command = without_settings(executable, "ETCD");
        command.env("ORDER_SERVICE_LISTEN", "127.0.0.1:0").env("ETCD_LOCKED_ENDPOINTS", endpoint);
        if locked {
            command.env_remove("ORDER_SERVICE_UNLOCKED");
        } else {
            command.env("ORDER_SERVICE_UNLOCKED", "1");
        }
        let (process, address, printed) = Process::listening("order-service", &mut command)?;
        let odd = |_| format!("order-service listens on an odd address: {address}");
        Ok(Self { process, address: address.parse().map_err(odd)?, _stdout: printed })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns how many locks it has taken, and how long each took.
    pub(crate) fn stats(&self) -> Result<(u64, Vec<Duration>)> {
        let (body, stats) = self.get("/stats")?;
        let waits = stats["waits_us"].as_array().and_then(|waits| {
            waits.iter().map(|wait| wait.as_u64().map(Duration::from_micros)).collect()
        });
        stats["locks_taken"].as_u64().zip(waits).ok_or_else(|| format!("odd statistics: {body}"))
    }

    /// Puts that many pieces on the shelf, and empties the book.
    pub(crate) fn restock(&self, article: &str, pieces: u64) -> Result<()> {
        let path = format!("/stock/{article}/{pieces}");
        match http::request("PUT", self.address, &path)? {
            answer if answer.status == 200 => Ok(()),
            answer => Err(format!("PUT {path}: {} {}", answer.status, answer.body)),
        }
    }

    /// Returns how many pieces of an article are left, and how many are sold by the book.
    pub(crate) fn stock(&self, article: &str) -> Result<(u64, u64)> {
        let (body, stock) = self.get(&format!("/stock/{article}"))?;
        let numbers = stock["left"].as_u64().zip(stock["sold"].as_u64());
        numbers.ok_or_else(|| format!("odd stock: {body}"))
    }

    fn get(&self, path: &str) -> Result<(String, Value)> {
        let body = http::get(self.address, path)?.body;
        // What is no JSON has no fields either.
        let value = serde_json::from_str(&body).unwrap_or_default();
        Ok((body, value))
    }

    /// Stops the service as an orchestrator would: by SIGTERM, after which it must end well.
    pub(crate) fn stop(mut self) -> Result<()> {
        let status = self.process.terminate(Duration::from_secs(15))?;
        match status.success() {
            true => Ok(()),
            false => Err(format!("order-service does not end well on SIGTERM: {status}")),
        }
    }
}
