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

/// Numbers of the store for one article.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stock {
    pub(crate) left: usize,
    pub(crate) sold: usize,
}

/// Statistics of one service.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub(crate) locks_taken: u64,
    pub(crate) waits: Vec<Duration>,
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

    pub(crate) fn stats(&self) -> Result<Stats> {
        let body = http::get(self.address, "/stats")?.body;
        parse(&body).ok_or_else(|| format!("order-service has odd statistics: {body}"))
    }

    /// Puts that many pieces on the shelf, and empties the book.
    pub(crate) fn restock(&self, article: &str, pieces: usize) -> Result<()> {
        let path = format!("/stock/{article}/{pieces}");
        match http::request("PUT", self.address, &path)? {
            answer if answer.status == 200 => Ok(()),
            answer => Err(format!("PUT {path}: {} {}", answer.status, answer.body)),
        }
    }

    pub(crate) fn stock(&self, article: &str) -> Result<Stock> {
        let body = http::get(self.address, &format!("/stock/{article}"))?.body;
        stock(&body).ok_or_else(|| format!("order-service has odd stock: {body}"))
    }

    /// Stops the service as an orchestrator would: by SIGTERM, after which it must end well.
    pub(crate) fn stop(mut self) -> Result<()> {
        let status = self.process.terminate(Duration::from_secs(15))?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("order-service does not end well on SIGTERM: {status}"))
        }
    }
}

fn parse(body: &str) -> Option<Stats> {
    let body: Value = serde_json::from_str(body).ok()?;
    let waits = body.get("waits_us")?.as_array()?.iter();
    Some(Stats {
        locks_taken: body.get("locks_taken")?.as_u64()?,
        waits: waits.map(|wait| wait.as_u64().map(Duration::from_micros)).collect::<Option<_>>()?,
    })
}

fn stock(body: &str) -> Option<Stock> {
    let body: Value = serde_json::from_str(body).ok()?;
    let number = |field: &str| usize::try_from(body.get(field)?.as_u64()?).ok();
    Some(Stock { left: number("left")?, sold: number("sold")? })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    #[test]
    fn refuses_incomplete_stock() {
        let stock = super::Stock { left: 2, sold: 5 };
        assert_eq!(super::stock(r#"{"left":2,"sold":5}"#), Some(stock));
        assert_eq!(super::stock("no such article"), None);
    }

    #[test]
    fn refuses_incomplete_statistics() {
        let stats = super::parse(r#"{"locks_taken":2,"waits_us":[5,7]}"#).expect("statistics");
        assert_eq!(stats.locks_taken, 2);
        assert_eq!(stats.waits, [Duration::from_micros(5), Duration::from_micros(7)]);
        assert!(super::parse(r#"{"locks_taken":2,"waits_us":[5,"x"]}"#).is_none());
    }
}
