//! `cargo xtask demo`: what the lock is for, in numbers.

use std::path::Path;

use crate::etcd::Etcd;
use crate::process::output;
use crate::report::{Round, Table};
use crate::server::Server;
use crate::service::Service;
use crate::{Result, load, say};

const SERVICES: usize = 3;
const CUSTOMERS: usize = 120;
const STOCK: usize = 40;
const PURCHASE: &str = "/orders/lamp/purchase";

/// The order service's keys: pieces on the shelf, and one key for each piece sold.
const SHELF: &str = "shop/lamp/stock";
const BOOK: &str = "shop/lamp/sold/";

/// The last line, once both rounds are as they must be.
pub(crate) fn demo() -> Result<String> {
    say::step("etcd");
    let etcd = Etcd::find()?;
    say::step("building the order service (the first time takes a minute or two)");
    let executable = Service::build()?;
    let server = Server::start(&etcd)?;

    say::step(format_args!(
        "{CUSTOMERS} customers, {STOCK} lamps, {SERVICES} processes of the order service, one etcd on {}",
        server.endpoint()
    ));
    let without = round(&server, &executable, false)?;
    let with = round(&server, &executable, true)?;
    let rounds = [without, with];
    println!("\n{}", Table(&rounds));
    let [without, with] = rounds;

    if with.oversold() > 0 {
        return Err(format!("with the lock it oversold by {}", with.oversold()));
    }
    if with.sold != STOCK || with.left != 0 {
        return Err(format!(
            "with the lock it sold {} of {STOCK} and has {} left",
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

fn round(server: &Server, executable: &Path, locked: bool) -> Result<Round> {
    let title = if locked {
        "with the lock"
    } else {
        "without the lock"
    };
    output(server.ctl().args(["del", "--prefix", "shop/"]))?;
    output(server.ctl().args(["put", SHELF, &STOCK.to_string()]))?;

    let services = (0..SERVICES)
        .map(|_| Service::start(executable, &server.endpoint(), locked))
        .collect::<Result<Vec<_>>>()?;
    let addresses: Vec<_> = services.iter().map(Service::address).collect();
    let answers = load::buy(&addresses, PURCHASE, CUSTOMERS, title)?;
    let stats = services
        .iter()
        .map(Service::stats)
        .collect::<Result<Vec<_>>>();
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
    let sold = server.keys(BOOK)?.len();
    if sold != answers.bought {
        return Err(format!(
            "{title}: {} customers were told that they bought, the book has {sold}",
            answers.bought
        ));
    }
    let left = output(server.ctl().args(["get", "--print-value-only", SHELF]))?;
    let left = left
        .trim()
        .parse()
        .map_err(|error| format!("{title}: the shelf says `{}`: {error}", left.trim()))?;

    let stats = stats?;
    let mut waits: Vec<_> = stats
        .iter()
        .flat_map(|stats| stats.waits.iter().copied())
        .collect();
    waits.sort_unstable();
    Ok(Round {
        title,
        sold,
        stock: STOCK,
        left,
        locks_taken: stats.iter().map(|stats| stats.locks_taken).sum(),
        waits,
    })
}
