//! Random cases: the embedded etcd responds to them like a real one, in memory and over TCP.

use std::env;
use std::thread;
use std::time::Instant;

use etcd_client::Client;
use etcd_locked_devkit::Member;
use etcd_locked_devkit::limit::blocking;
use etcd_locked_embedded::Etcd as Embedded;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

use crate::coverage::Coverage;
use crate::pair::Pair;
use crate::side::Side;
use crate::versions::Version;

/// Number of pairs at a time. Half of a case's time is waiting for a real etcd.
const PAIRS: u64 = 2;

pub(crate) fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Starts a real etcd.
pub(crate) async fn start() -> Member {
    blocking(Member::start).await
}

/// Connects a client for the test.
pub(crate) async fn client(etcd: &Member) -> Client {
    Client::connect([etcd.endpoint()], None).await.expect("etcd answers")
}

/// Connects to a real etcd, and returns its version too.
pub(crate) async fn real(etcd: &Member) -> (Side, Version) {
    let mut client = client(etcd).await;
    let status = client.status().await.expect("a real etcd has a status");
    (Side::new("real", client), Version::new(status.version()))
}

/// Reads a number from the environment.
fn number(name: &str, default: u64) -> u64 {
    match env::var(name) {
        Ok(it) => it.parse().unwrap_or_else(|_| panic!("{name} is a number, not `{it}`")),
        Err(_) => default,
    }
}

/// Plays this many cases on a separate real etcd, and on `other`.
fn play(cases: u64, seed: u64, other: impl AsyncFnOnce() -> Side) -> Coverage {
    let runtime = runtime();
    let (etcd, pair) = runtime.block_on(async {
        let etcd = start().await;
        let (real, version) = real(&etcd).await;
        (etcd, Pair::new(real, other().await, version))
    });
    let cases = u32::try_from(cases).expect("fewer cases");
    pair.agree(&runtime, cases, seed).unwrap_or_else(|difference| {
        let log = std::fs::read_to_string(etcd.log()).unwrap_or_default();
        panic!("{difference}\nthe real one's log:\n{log}");
    })
}

#[test]
fn embedded_etcd_answers_like_a_real_one() {
    let began = Instant::now();
    let (cases, seed) = (number("CASES", 240), number("SEED", 0));
    let players: Vec<_> = (0..PAIRS)
        .map(|nth| {
            let cases = (cases + nth) / PAIRS;
            thread::spawn(move || play(cases, seed * PAIRS + nth, Side::embedded))
        })
        .collect();
    let mut coverage = Coverage::default();
    for player in players {
        match player.join() {
            Ok(it) => coverage.add(it),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    println!("{cases} cases in {:.1?}: {coverage:#?}", began.elapsed());
    let missing = coverage.missing();
    assert!(missing.is_empty(), "never came up: {missing:?}");
}

#[test]
fn embedded_etcd_on_tcp_answers_like_a_real_one() {
    play(20, 1_000, async || {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let etcd = Embedded::new();
        tokio::spawn(async move { etcd.serve(listener).await });
        let client = Client::connect([address.to_string()], None).await;
        Side::new("served", client.expect("a client"))
    });
}
