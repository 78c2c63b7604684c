//! `cargo xtask roll`: a rolling restart of three replicas of the axum shop, under load.
//!
//! Each replica in turn gets SIGTERM while it holds hot locks, is awaited, and is started again. Clients reach them by a balancer.

mod balancer;
mod customers;
mod figures;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use etcd_locked_devkit::{Member, Setup, until};
use serde_json::Value;
use tempfile::TempDir;

use self::balancer::Balancer;
use self::customers::{Customers, now_us};
use self::figures::{Figures, Stop, hand_overs};
use crate::etcd::Etcd;
use crate::ops::shop::{BINARY, Shop};
use crate::options::Asked;
use crate::{Result, http, say, workspace};

/// Replicas of the shop.
const REPLICAS: usize = 3;

/// How long the bank and the printer take, in milliseconds: the most of a body.
const BODY_MS: &str = "50";

/// The limit of each step.
const PATIENCE: Duration = Duration::from_secs(60);

/// Rounds after which there should be enough hand-overs.
const ROUNDS: usize = 200;

/// Rolls until so many locks were handed over; prints the figures.
pub(crate) fn roll(asked: &Asked, times: usize) -> Result<String> {
    let etcd = asked.find()?;
    say::step("building the shop (the first time takes some minutes)");
    let [executable] = workspace::build(&[], [BINARY])?;
    let begun = Instant::now();
    let figures = Town::start(&etcd, executable)?.play(times)?;
    println!("\n{figures}");
    figures.verdict()?;
    Ok(format!(
        "roll: ok — {} restarts under load, on etcd {}, in {:.0} s",
        figures.stops.len() - REPLICAS,
        etcd.version,
        begun.elapsed().as_secs_f64()
    ))
}

/// An etcd, the shop's database, and its program.
#[derive(Debug)]
struct Town {
    etcd: Member,
    folder: TempDir,
    executable: PathBuf,
}

impl Town {
    fn start(etcd: &Etcd, executable: PathBuf) -> Result<Self> {
        Ok(Self {
            etcd: Setup::default().binary(&etcd.server).start()?,
            folder: tempfile::tempdir().map_err(|error| format!("no place: {error}"))?,
            executable,
        })
    }

    fn replica(&self) -> Result<Shop> {
        let variables = [
            ("ETCD_LOCKED_ENDPOINTS", self.etcd.endpoint()),
            ("SHOP_BANK_MS", BODY_MS.to_owned()),
            ("SHOP_PRINTER_MS", BODY_MS.to_owned()),
        ];
        let database = self.folder.path().join("shop.db");
        Shop::start(&self.executable, &database, &variables)
    }

    /// Rolls under load until so many locks were handed over, then ends all replicas.
    fn play(&self, times: usize) -> Result<Figures> {
        let mut replicas = Vec::new();
        for _ in 0..REPLICAS {
            replicas.push(self.replica()?);
        }
        for article in Customers::articles() {
            replicas[0].restock(&article)?;
        }
        let balancer = Balancer::default();
        for replica in &replicas {
            balancer.add(replica.address);
        }
        let ends = AtomicBool::new(false);
        let customers = Customers::new(&balancer, &ends);
        let mut stops = Vec::new();
        thread::scope(|scope| {
            scope.spawn(|| balancer.probe(&ends));
            customers.send(scope);
            let rolled = self.roll(&mut replicas, &balancer, &customers, &mut stops, times);
            // The customers in the shop get their answers; then there are none left.
            ends.store(true, Ordering::Relaxed);
            rolled
        })?;
        for replica in replicas {
            stops.push(self.stop(replica)?);
        }
        let seen = std::mem::take(&mut *customers.seen());
        let (keys, leases) = (self.etcd.gateway().keys("")?, self.etcd.gateway().leases()?);
        let leases = leases.iter().map(|lease| format!("lease {lease:x}"));
        Ok(Figures { seen, stops, left: keys.into_iter().chain(leases).collect() })
    }

    fn roll(
        &self,
        replicas: &mut Vec<Shop>,
        balancer: &Balancer,
        customers: &Customers<'_>,
        stops: &mut Vec<Stop>,
        times: usize,
    ) -> Result<()> {
        let all_ready = || balancer.ready() == REPLICAS;
        until("all replicas are ready", PATIENCE, all_ready)?;
        for round in 1..=ROUNDS {
            for _ in 0..REPLICAS {
                let replica = replicas.remove(0);
                let address = replica.address;
                let in_use = || locks(&replica).is_ok_and(|it| holds(&it) && waits(&it));
                until("a replica is in use", PATIENCE, in_use)?;
                stops.push(self.stop(replica)?);
                balancer.forget(address);
                let next = self.replica()?;
                balancer.add(next.address);
                replicas.push(next);
                until("the replica is ready again", PATIENCE, all_ready)?;
            }
            let measured = hand_overs(&customers.seen().holds, stops).len();
            say::note(format_args!("round {round}: {measured} of {times} hand-overs"));
            if measured >= times {
                return Ok(());
            }
        }
        Err(format!("fewer than {times} hand-overs in {ROUNDS} rounds"))
    }

    /// Ends a replica as an orchestrator would, and reads what it has left in etcd.
    fn stop(&self, replica: Shop) -> Result<Stop> {
        let leases: Vec<i64> = leases(&locks(&replica)?)?;
        let address = replica.address;
        let (at, sent) = (now_us(), Instant::now());
        replica.stop()?;
        let took = sent.elapsed();
        let gateway = self.etcd.gateway();
        let keys = gateway.leased("")?.into_iter();
        let keys = keys.filter(|(_, lease)| leases.contains(lease));
        let kept = gateway.leases()?.into_iter();
        let kept = kept.filter(|lease| leases.contains(lease));
        let left = keys.map(|(key, _)| format!("the key {key}"));
        Ok(Stop {
            replica: address,
            at,
            took,
            left: left.chain(kept.map(|lease| format!("the lease {lease:x}"))).collect(),
        })
    }
}

/// Reads which locks a replica holds and waits for, and its leases.
fn locks(replica: &Shop) -> Result<Value> {
    let answer = http::get(replica.address, "/locks")?;
    serde_json::from_str(&answer.body).map_err(|error| format!("/locks: {error}"))
}

fn holds(locks: &Value) -> bool {
    any(locks, "held")
}

fn waits(locks: &Value) -> bool {
    any(locks, "waiting")
}

/// Returns whether one of these locks is a hot article's.
fn any(locks: &Value, which: &str) -> bool {
    let names = locks[which].as_array().into_iter().flatten();
    let mut names = names.filter_map(|lock| lock["name"].as_str());
    names.any(|name| name.starts_with("shelves/hot-"))
}

fn leases(locks: &Value) -> Result<Vec<i64>> {
    let leases = locks["leases"].as_array().into_iter().flatten();
    let id = |lease: &Value| i64::from_str_radix(lease["id"].as_str()?, 16).ok();
    leases.map(|lease| id(lease).ok_or_else(|| format!("an odd lease: {lease}"))).collect()
}
