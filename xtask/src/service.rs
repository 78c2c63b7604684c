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

/// Settings of a process of the order service.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings<'a> {
    pub(crate) executable: &'a Path,
    pub(crate) endpoint: &'a str,
    /// False if it sells without the lock.
    pub(crate) locked: bool,
    /// TTL of its lease, in whole seconds.
    pub(crate) ttl: Duration,
    /// Duration of every payment.
    pub(crate) payment: Duration,
}

/// One process of the order service, which ends when dropped.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) process: Process,
    pub(crate) address: SocketAddr,
    // Kept open: the service must be able to print.
    _stdout: Printed,
}

impl Service {
    pub(crate) fn start(settings: Settings<'_>) -> Result<Self> {
        let Settings { executable, endpoint, locked, ttl, payment } = settings;
        // The user's settings are those of another etcd.
        let mut command = without_settings(executable, "ETCD");
        command
            .env("ETCD_LOCKED_ENDPOINTS", endpoint)
            .env("ETCD_LOCKED_TTL", format!("{}s", ttl.as_secs()))
            .env("ORDER_SERVICE_LISTEN", "127.0.0.1:0")
            .env("ORDER_SERVICE_UNLOCKED", if locked { "0" } else { "1" })
            .env("ORDER_SERVICE_PAYMENT_MS", payment.as_millis().to_string())
            .env("RUST_LOG", "error,etcd_locked::engine=warn"); // lost locks, but no warnings about the version of etcd
        let (process, address, printed) = Process::listening("order-service", &mut command)?;
        let odd = |_| format!("order-service listens on an odd address: {address}");
        Ok(Self { process, address: address.parse().map_err(odd)?, _stdout: printed })
    }

    /// Returns how many locks it has taken, and how long each purchase waited before its body began.
    pub(crate) fn stats(&self) -> Result<(u64, Vec<Duration>)> {
        let (body, stats) = self.get("/stats")?;
        let waits = stats["waits_us"].as_array().and_then(|waits| {
            waits.iter().map(|wait| wait.as_u64().map(Duration::from_micros)).collect()
        });
        stats["locks_taken"].as_u64().zip(waits).ok_or_else(|| format!("odd statistics: {body}"))
    }

    /// Sets the number of pieces on the shelf, and empties the book of sales.
    pub(crate) fn restock(&self, article: &str, pieces: u64) -> Result<()> {
        let path = format!("/stock/{article}/{pieces}");
        match http::request("PUT", self.address, &path)? {
            answer if answer.status == 200 => Ok(()),
            answer => Err(format!("PUT {path}: {} {}", answer.status, answer.body)),
        }
    }

    /// Returns how many pieces of an article the shelf has, and how many the book of sales has.
    pub(crate) fn stock(&self, article: &str) -> Result<(u64, u64)> {
        let (body, stock) = self.get(&format!("/stock/{article}"))?;
        let numbers = stock["left"].as_u64().zip(stock["sold"].as_u64());
        numbers.ok_or_else(|| format!("odd stock: {body}"))
    }

    fn get(&self, path: &str) -> Result<(String, Value)> {
        let body = http::get(self.address, path)?.body;
        // A body that is not JSON gives a value without fields.
        let value = serde_json::from_str(&body).unwrap_or_default();
        Ok((body, value))
    }

    /// Stops the service as an orchestrator does: it sends SIGTERM, and the service must then exit with success.
    pub(crate) fn stop(mut self) -> Result<()> {
        let status = self.process.terminate(Duration::from_secs(15))?;
        match status.success() {
            true => Ok(()),
            false => Err(format!("order-service fails after SIGTERM: {status}")),
        }
    }
}
