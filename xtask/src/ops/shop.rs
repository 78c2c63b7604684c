//! Shop behind axum as a target of Prometheus: its processes, its customers, and a clerk who holds a lock for long.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use etcd_locked_devkit::http::{self, Request};

use crate::Result;
use crate::process::{Printed, Process};

/// Package and binary of the shop.
pub(crate) const BINARY: (&str, &str) = ("etcd-locked-examples", "shop-axum");

/// The article that all customers want, so that they wait for each other.
pub(crate) const ARTICLE: &str = "lamp";
/// The pause of a customer between two orders. The test wants some traffic, not much.
const PAUSE: Duration = Duration::from_millis(100);
/// The limit of an order, longer than any that the shop has.
const PATIENCE: Duration = Duration::from_secs(30);
/// The time that the shop has to end: more than its grace.
const END: Duration = Duration::from_secs(30);

/// One process of the shop; ended when dropped.
#[derive(Debug)]
pub(crate) struct Shop {
    process: Process,
    pub(crate) address: SocketAddr,
    // Kept open: the shop must be able to print.
    _stdout: Printed,
}

impl Shop {
    /// Starts a process with these variables, on a database that several may share. Its printer takes ten minutes, unless they
    /// say otherwise.
    pub(crate) fn start(
        executable: &Path,
        database: &Path,
        variables: &[(&str, String)],
    ) -> Result<Self> {
        let mut command = Command::new(executable);
        command
            .env("SHOP_LISTEN", "127.0.0.1:0")
            .env("SHOP_DATABASE", database)
            .env("SHOP_PRINTER_MS", "600000")
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stderr(Stdio::null()); // of refused requests, which the faults want
        let (process, address, printed) = Process::listening("shop-axum", &mut command)?;
        let odd = |_| format!("shop-axum listens on an odd address: {address}");
        Ok(Self { process, address: address.parse().map_err(odd)?, _stdout: printed })
    }

    /// Puts so many pieces on the shelf that nothing is ever sold out.
    pub(crate) fn restock(&self, article: &str) -> Result<()> {
        let path = format!("/shelves/{article}/4000000000");
        let answer = http::request("PUT", self.address, &path)?;
        match answer.status {
            200 => Ok(()),
            status => Err(format!("PUT {path}: {status} {}", answer.body)),
        }
    }

    /// Asks for the page of this path, and returns its status; 0 for no answer.
    pub(crate) fn status(&self, path: &str) -> u16 {
        http::get(self.address, path).map_or(0, |answer| answer.status)
    }

    /// Places an order, and returns the status of the answer; 0 for none.
    pub(crate) fn order(&self, id: u64) -> u16 {
        order(self.address, id)
    }

    /// Has a clerk begin to print the invoice of an order: the shop holds the order's lock until the clerk goes.
    pub(crate) fn invoice(&self, id: u64) -> Result<Clerk> {
        let io = |error: std::io::Error| format!("the clerk: {error}");
        let mut connection = TcpStream::connect(self.address).map_err(io)?;
        let request = format!(
            "POST /orders/{id}/invoice HTTP/1.1\r\nHost: shop\r\nContent-Length: 0\r\n\r\n"
        );
        connection.write_all(request.as_bytes()).map_err(io)?;
        Ok(Clerk { _connection: connection })
    }

    /// Stops it as an orchestrator would: by SIGTERM, after which it must end well.
    pub(crate) fn stop(mut self) -> Result<()> {
        let status = self.process.terminate(END)?;
        match status.success() {
            true => Ok(()),
            false => Err(format!("shop-axum does not end well on SIGTERM: {status}")),
        }
    }
}

fn order(shop: SocketAddr, id: u64) -> u16 {
    let path = format!("/orders/{id}");
    let body = format!(r#"{{"sku": "{ARTICLE}", "pieces": 1}}"#);
    let request = Request::new("PUT", shop, &path).body(&body).limit(PATIENCE);
    request.send().map_or(0, |answer| answer.status)
}

/// A clerk with an invoice; goes when dropped, and the lock is free.
#[derive(Debug)]
pub(crate) struct Clerk {
    _connection: TcpStream,
}

/// Customers who order again and again; they go when dropped.
#[derive(Debug)]
pub(crate) struct Customers {
    going: Arc<AtomicBool>,
    served: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Customers {
    /// Sends so many customers to each shop: each places new orders, or again and again the order `same`.
    pub(crate) fn send(shops: &[&Shop], each: usize, same: Option<u64>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1_000);
        let going = Arc::new(AtomicBool::new(false));
        let served = Arc::new(AtomicU64::new(0));
        let shops = shops.iter().map(|shop| shop.address);
        let threads = shops.flat_map(|shop| std::iter::repeat_n(shop, each));
        let threads = threads.map(|shop| {
            let (going, served) = (Arc::clone(&going), Arc::clone(&served));
            thread::spawn(move || {
                while !going.load(Ordering::Relaxed) {
                    let id = same.unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed));
                    if order(shop, id) == 200 {
                        served.fetch_add(1, Ordering::Relaxed);
                    }
                    thread::sleep(PAUSE);
                }
            })
        });
        Self { threads: threads.collect(), going, served }
    }

    /// Returns how many orders were placed so far.
    pub(crate) fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }
}

impl Drop for Customers {
    fn drop(&mut self) {
        self.going.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
