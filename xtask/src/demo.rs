//! `cargo xtask demo`: a sale over several services, without the lock and with it, in numbers.

use std::path::Path;
use std::process::Command;

use crate::process::Process;
use crate::report::{Round, Table};
use crate::service::{self, Service, Stats, Stock};
use crate::{Result, load, say, workspace};

/// cargo options that leave out the dependencies of other examples.
const LIGHT: &[&str] = &["--no-default-features"];
/// Package and binary of the embedded etcd.
const EMBEDDED: (&str, &str) = ("etcd-locked-embedded", "etcd-locked-embedded");
const SERVICES: usize = 3;
const CUSTOMERS: usize = 120;
const PIECES: usize = 40;
const ARTICLE: &str = "lamp";
const PURCHASE: &str = "/orders/lamp/purchase";

/// Runs both rounds and checks them; returns the last line to print.
pub(crate) fn demo() -> Result<String> {
    say::step("building the order service (the first time takes a minute or two)");
    let [executable, etcd] = workspace::build(LIGHT, [service::BINARY, EMBEDDED])?;
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
    let rounds = [without, with];
    println!("\n{}", Table(&rounds));
    let [without, with] = rounds;

    if with.oversold() > 0 {
        return Err(format!("with the lock it oversold by {}", with.oversold()));
    }
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
    let (answers, stats, Stock { left, sold }) = sale(&services, title)?;
    for service in services {
        service.stop()?;
    }
    say::note(format_args!(
        "{title}: {} bought, {} found it sold out",
        answers.bought, answers.sold_out
    ));
    if let Some(first) = answers.odd.first() {
        return Err(format!(
            "{title}: {} purchases got no proper answer, the first one: {first}",
            answers.odd.len()
        ));
    }

    // The store knows, not the answers; but the two must agree.
    if sold != answers.bought {
        return Err(format!(
            "{title}: {} customers got the answer that they bought, the book has {sold}",
            answers.bought
        ));
    }
    let mut waits: Vec<_> = stats.iter().flat_map(|stats| stats.waits.iter().copied()).collect();
    waits.sort_unstable();
    Ok(Round {
        title,
        sold,
        stock: PIECES,
        left,
        locks_taken: stats.iter().map(|stats| stats.locks_taken).sum(),
        waits,
    })
}

/// Sends all customers at once. Returns their answers, the statistics of the services, and the stock afterwards.
fn sale(services: &[Service], title: &str) -> Result<(load::Answers, Vec<Stats>, Stock)> {
    let [first, ..] = services else {
        return Err("no service".to_owned());
    };
    first.restock(ARTICLE, PIECES)?;
    let addresses: Vec<_> = services.iter().map(Service::address).collect();
    let answers = load::buy(&addresses, PURCHASE, CUSTOMERS, title)?;
    let stats = services.iter().map(Service::stats);
    Ok((answers, stats.collect::<Result<_>>()?, first.stock(ARTICLE)?))
}
