//! `cargo xtask demo`: a sale over several services, without the lock and with it, in numbers.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use crate::process::Process;
use crate::service::{self, Service};
use crate::{Result, http, say, workspace};

/// cargo options that leave out the dependencies of other examples.
const LIGHT: &[&str] = &["--no-default-features"];
/// Tests of the packages of both programs.
const TESTS: &[&str] = &["systems", "tcp"];
/// Package and binary of the embedded etcd.
const EMBEDDED: (&str, &str) = ("etcd-locked-embedded", "etcd-locked-embedded");
const SERVICES: usize = 3;
const CUSTOMERS: usize = 120;
const PIECES: u64 = 40;
const ARTICLE: &str = "lamp";
const PURCHASE: &str = "/orders/lamp/purchase";

/// One round: sales and stock as the store has them, locks and waits as the services have counted them.
struct Round {
    title: &'static str,
    /// Entries in the book of sales.
    sold: u64,
    /// Pieces on the shelf at the end.
    left: u64,
    locks_taken: u64,
    /// Waits for the lock, ascending.
    waits: Vec<Duration>,
}

impl Round {
    fn oversold(&self) -> u64 {
        self.sold.saturating_sub(PIECES)
    }

    /// Returns the wait that `percent` % of the calls did not exceed, as the table says it.
    fn wait(&self, percent: usize) -> String {
        let rank = (self.waits.len() * percent).div_ceil(100);
        let wait = rank.checked_sub(1).and_then(|at| self.waits.get(at));
        wait.map_or("-".to_owned(), |wait| format!("{:.1} ms", wait.as_secs_f64() * 1e3))
    }
}

/// Runs both rounds and checks them; returns the last line to print.
pub(crate) fn demo(built: bool) -> Result<String> {
    say::step("building the order service (the first time takes a minute or two)");
    let [executable, etcd] = match built {
        true => {
            let folder = workspace::built_for_tests(TESTS)?;
            [service::BINARY, EMBEDDED].map(|(_, binary)| folder.join(binary))
        }
        false => workspace::build(LIGHT, [service::BINARY, EMBEDDED])?,
    };
    // It listens on TCP, because the services are processes; `_printed` is kept open, so that it can print.
    let mut etcd = Command::new(etcd);
    etcd.args(["--listen", "127.0.0.1:0"]);
    let (_etcd, address, _printed) = Process::listening("the embedded etcd", &mut etcd)?;
    let endpoint = format!("http://{address}");

    say::step(format_args!(
        "{CUSTOMERS} customers, {PIECES} lamps, {SERVICES} processes of the order service, on an embedded etcd at {endpoint}"
    ));
    let without = round(&endpoint, &executable, false)?;
    let with = round(&endpoint, &executable, true)?;
    println!(
        "\n{:18}{:>6}{:>7}{:>7}{:>10}{:>13}{:>12}{:>12}",
        "", "sold", "stock", "left", "oversold", "locks taken", "wait p50", "wait p99"
    );
    for round in [&without, &with] {
        let Round { title, sold, left, locks_taken, .. } = round;
        let (oversold, p50, p99) = (round.oversold(), round.wait(50), round.wait(99));
        println!(
            "{title:18}{sold:>6}{PIECES:>7}{left:>7}{oversold:>10}{locks_taken:>13}{p50:>12}{p99:>12}"
        );
    }
    println!();

    if with.sold != PIECES || with.left != 0 {
        return Err(format!(
            "with the lock it sold {} of {PIECES} and has {} left",
            with.sold, with.left
        ));
    }
    if with.locks_taken != CUSTOMERS as u64 || without.locks_taken != 0 {
        return Err(format!(
            "{} locks with the lock and {} without are not the plan",
            with.locks_taken, without.locks_taken
        ));
    }
    if without.oversold() == 0 {
        return Err("without the lock nothing was oversold this time, so this run shows nothing; run it again".to_owned());
    }
    Ok(format!(
        "demo: ok — without the lock oversold by {}, with it by {}",
        without.oversold(),
        with.oversold()
    ))
}

fn round(endpoint: &str, executable: &Path, locked: bool) -> Result<Round> {
    let title = if locked { "with the lock" } else { "without the lock" };
    let services = (0..SERVICES)
        .map(|_| Service::start(executable, endpoint, locked))
        .collect::<Result<Vec<_>>>()?;
    services[0].restock(ARTICLE, PIECES)?;
    let addresses: Vec<_> = services.iter().map(Service::address).collect();
    let bought = buy(&addresses).map_err(|odd| format!("{title}: {odd}"))?;
    // The store knows, not the answers; but the two must agree.
    let (left, sold) = services[0].stock(ARTICLE)?;
    if sold != bought {
        return Err(format!(
            "{title}: {bought} customers got the answer that they bought, the book has {sold}"
        ));
    }
    let (mut locks_taken, mut waits) = (0, Vec::new());
    for service in services {
        let (locks, waited) = service.stats()?;
        locks_taken += locks;
        waits.extend(waited);
        service.stop()?;
    }
    waits.sort_unstable();
    Ok(Round { title, sold, left, locks_taken, waits })
}

/// Sends all customers at once, spread over all services; returns how many bought. All others must find it sold out.
fn buy(services: &[SocketAddr]) -> Result<u64> {
    let start = Barrier::new(CUSTOMERS);
    let answers: Vec<_> = thread::scope(|scope| {
        let customer = |service: SocketAddr| {
            start.wait();
            http::post(service, PURCHASE)
        };
        let services = services.iter().cycle().take(CUSTOMERS);
        let customers: Vec<_> =
            services.map(|service| scope.spawn(move || customer(*service))).collect();
        customers.into_iter().map(|it| it.join()).collect()
    });
    let mut bought = 0;
    for answer in answers {
        let answer = answer.map_err(|_| "a customer has panicked")??;
        match answer.status {
            200 => bought += 1,
            409 => {}
            status => return Err(format!("a purchase got {status} {}", answer.body)),
        }
    }
    Ok(bought)
}
