//! One lock, many languages: `examples/interop/README.md` says what is shared and what is not, and here it is checked.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use etcd_client::{Client, EventType, WatchOptions, WatchStream};
use etcd_locked::{Config, LockError, Locks};
use tokio::time::{Duration, sleep};

use crate::etcd::{Etcd, etcdctl};
use crate::limit::{run, within};
use crate::stage::{Program, Stage};

const LOCK: &str = "locks/counter/";
/// Of each contender: 200 altogether.
const TURNS: usize = 40;
const KINDS: [&str; 5] = ["ours", "service", "go", "etcdctl", "aetcd"];

#[test]
#[ignore = "wants what is brought by `cargo xtask examples interop`: a program in Go, aetcd for Python"]
fn five_kinds_count_together_and_lose_nothing() {
    run(async {
        let etcd = Etcd::start().await;
        let stage = Stage::new(etcd.endpoints());
        let scratch = tempfile::tempdir().expect("a directory");
        let counter = scratch.path().join("counter");
        fs::write(&counter, "0\n").expect("a counter");

        // Nobody begins before all are in line: the first in line is the test.
        let mut client = etcd.client().await;
        let mut events = watch(&client).await;
        let gate = format!("{LOCK}gate");
        client.put(gate.clone(), "", None).await.expect("the gate");
        let mut contenders = KINDS.map(|kind| contender(&stage, &etcd, kind, &counter));
        etcd.until_below(LOCK, 1 + KINDS.len()).await;
        client.delete(gate, None).await.expect("no gate");
        for contender in &mut contenders {
            stage.ends_well(contender).await;
        }

        let said = stage.lines();
        let mut turns: Vec<Turn> = said.iter().filter_map(|line| Turn::read(line)).collect();
        turns.sort_by_key(|turn| turn.count);
        let counts = turns.iter().map(|turn| turn.count);
        assert!(
            counts.eq(1..=KINDS.len() * TURNS),
            "each turn has a count of its own",
        );
        let last = fs::read_to_string(&counter).expect("the counter");
        assert!(last.trim() == "200", "the file has counted all turns");
        for kind in KINDS {
            let had = turns.iter().filter(|turn| turn.kind == kind).count();
            assert!(had == TURNS, "each has had its turns");
        }
        let grows = turns.windows(2).all(|two| two[0].token < two[1].token);
        assert!(grows, "the token grows from turn to turn");

        let places = places(&mut events, turns.len()).await;
        first_come_first_served(&turns, &places);
        assert!(etcd.below(LOCK).await.is_empty(), "no key is left");
    });
}

/// The k-th turn is that of the key that was created as the k-th, whoever promises an order: all of them do, here.
fn first_come_first_served(turns: &[Turn], places: &[Place]) {
    let kinds: BTreeMap<&str, &str> = turns
        .iter()
        .filter_map(|turn| Some((turn.key.as_deref()?, turn.kind.as_str())))
        .collect();
    for (turn, place) in turns.iter().zip(places) {
        let kind = match place.is_ours {
            true => "ours",
            false => kinds.get(place.key.as_str()).copied().unwrap_or("nobody"),
        };
        assert!(
            turn.kind == kind && turn.key.as_ref().is_none_or(|key| *key == place.key),
            "turn {} is {kind}'s, who came with {place:?}",
            turn.count
        );
    }
    // Else there was no order to keep.
    let contended = places.iter().enumerate().filter(|(at, place)| {
        let later = &places[at + 1..];
        later.iter().filter(|it| it.created < place.deleted).count() >= 2
    });
    let contended = contended.count();
    assert!(
        contended >= turns.len() / 2,
        "two or more wait in at least every other turn, not only in {contended}"
    );
}

/// A line of a contender: the count, its kind, its token, its key if it knows it.
#[derive(Debug)]
struct Turn {
    count: usize,
    kind: String,
    token: i64,
    key: Option<String>,
}

impl Turn {
    fn read(line: &str) -> Option<Turn> {
        let mut words = line.split(' ');
        Some(Turn {
            count: words.next()?.parse().ok()?,
            kind: words.next()?.to_owned(),
            token: words.next()?.parse().ok()?,
            key: words.next().map(str::to_owned),
        })
    }
}

/// A key below the lock, from when until when.
#[derive(Debug)]
struct Place {
    key: String,
    /// Only our keys have a record.
    is_ours: bool,
    created: i64,
    deleted: i64,
}

async fn watch(client: &Client) -> WatchStream {
    let options = WatchOptions::new().with_prefix().with_start_revision(1);
    let watch = client.clone().watch(LOCK, Some(options)).await;
    watch.expect("a watch")
}

/// What etcd has seen of so many keys, in the order of their creation.
async fn places(events: &mut WatchStream, many: usize) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    let gone = |places: &Vec<Place>| {
        places
            .iter()
            .filter(|place| place.deleted < i64::MAX)
            .count()
    };
    while gone(&places) <= many {
        let news = within("all keys are deleted", events.message()).await;
        let news = news.expect("the watch").expect("the watch goes on");
        for event in news.events() {
            let kv = event.kv().expect("an event has a key");
            let key = String::from_utf8_lossy(kv.key()).into_owned();
            match event.event_type() {
                EventType::Put if kv.version() == 1 => places.push(Place {
                    key,
                    is_ours: kv.value().starts_with(b"{"),
                    created: kv.create_revision(),
                    deleted: i64::MAX,
                }),
                EventType::Put => {}
                EventType::Delete => {
                    let place = places.iter_mut().rfind(|place| place.key == key);
                    place.expect("it was created").deleted = kv.mod_revision();
                }
            }
        }
    }
    places.remove(0); // the gate
    places
}

fn contender(stage: &Stage, etcd: &Etcd, kind: &str, counter: &Path) -> Program {
    let (counter, turns) = (counter.to_string_lossy(), TURNS.to_string());
    let mut command = match kind {
        "go" => alone(brought("INTEROP_GO")),
        "aetcd" => python(),
        "etcdctl" => shell(),
        _ => alone(env!("CARGO_BIN_EXE_interop")),
    };
    match kind {
        "go" => {}
        "aetcd" => drop(command.arg(source("python/contender.py"))),
        "etcdctl" => drop(command.arg(source("etcdctl.sh"))),
        kind => drop(command.arg(kind)),
    }
    command.args([&*counter, &turns]);
    command.env("ETCDCTL_ENDPOINTS", etcd.endpoints());
    stage.run(command)
}

/// With nothing of the user's in its environment: endpoints, a prefix, a proxy; and etcdctl complains of what is not its own.
fn alone(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command
}

fn python() -> Command {
    let mut python = alone(brought("INTEROP_PYTHON"));
    python.env("PYTHONPATH", brought("INTEROP_PYTHON_PACKAGES"));
    python
}

fn shell() -> Command {
    let mut shell = alone("sh");
    shell.env("ETCDCTL", etcdctl()).env("ETCDCTL_API", "3");
    shell
}

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("interop")
        .join(path)
}

fn brought(variable: &str) -> PathBuf {
    match std::env::var_os(variable) {
        Some(path) => path.into(),
        None => {
            panic!("{variable} is not set; run `cargo xtask examples interop`, which brings it")
        }
    }
}

async fn engine(etcd: &Etcd) -> Locks {
    let config = Config::new(etcd.endpoints().split(','));
    Locks::connect(config).await.expect("an engine")
}

#[test]
#[ignore = "wants what is brought by `cargo xtask examples interop`: aetcd for Python"]
fn aetcds_bare_lock_sees_nobody() {
    run(async {
        let etcd = Etcd::start().await;
        let stage = Stage::new(etcd.endpoints());
        let locks = engine(&etcd).await;
        let held = locks.lock("counter").await.expect("the lock");
        let address = etcd.endpoints();
        let port = address.rsplit(':').next().expect("a port");
        let mut bare = python();
        bare.args(["-c", BARE, port]);
        let mut bare = stage.run(bare);
        stage.ends_well(&mut bare).await;
        assert!(stage.count("acquired True") == 1, "it is in");
        assert!(held.is_held(), "and so are we");
        let leases = etcd.client().await.leases().await.expect("leases");
        assert!(leases.leases().len() == 2, "it leaves its lease");
    });
}

const BARE: &str = "
import asyncio, sys, aetcd

async def main():
    async with aetcd.Client(host='127.0.0.1', port=int(sys.argv[1])) as client:
        lock = client.lock(b'locks/counter')
        print('acquired', await lock.acquire(timeout=5))
        await lock.release()

asyncio.run(main())
";

#[test]
fn others_wait_for_every_key_below_their_name() {
    run(async {
        let etcd = Etcd::start().await;
        let stage = Stage::new(etcd.endpoints());
        let locks = engine(&etcd).await;
        let below = locks.lock("counter/42").await.expect("the lock below");
        let above = locks.lock("counter").try_once().await;
        above
            .expect("we wait for direct children only")
            .release()
            .await
            .expect("released");

        let mut theirs = etcdctl_lock(&stage, &etcd, "echo it is in");
        etcd.until_below(LOCK, 2).await;
        sleep(Duration::from_millis(500)).await; // it has time to come in, if it does
        assert!(
            stage.count("it is in") == 0,
            "etcdctl waits for the lock below",
        );
        below.release().await.expect("released");
        stage.ends_well(&mut theirs).await;
        stage.says("it is in").await;
        let leases = etcd.client().await.leases().await.expect("leases");
        assert!(
            leases.leases().len() == 2,
            "beside our lease there is the one that etcdctl leaves",
        );
    });
}

#[test]
fn etcdctl_does_not_end_its_command_when_the_lock_is_lost() {
    run(async {
        let etcd = Etcd::start().await;
        let stage = Stage::new(etcd.endpoints());
        let locks = engine(&etcd).await;
        let scratch = tempfile::tempdir().expect("a directory");
        let go_on = scratch.path().join("go on");
        // It gives up after a minute at the latest, whatever becomes of the test.
        let line = format!(
            "echo it is in; n=0; until [ -e '{}' ]; do n=$((n + 1)); [ $n -lt 1200 ] || exit 1; sleep 0.05; done; \
             echo it is still in",
            go_on.display()
        );
        let mut theirs = etcdctl_lock(&stage, &etcd, &line);
        stage.says("it is in").await;
        let refused = locks.lock("counter").try_once().await;
        let unnamed = matches!(refused, Err(LockError::Held { holder: None, .. }));
        assert!(unnamed, "it is held by somebody who has left no record");

        let key = etcd.below(LOCK).await.remove(0);
        etcd.client()
            .await
            .lease_revoke(key.lease)
            .await
            .expect("revoked");
        let held = within("our turn", locks.lock("counter"))
            .await
            .expect("the lock");
        fs::write(go_on, "").expect("a file");
        stage.says("it is still in").await;
        assert!(held.is_held(), "and so are we");
        stage.ends_well(&mut theirs).await;
    });
}

/// Runs a command line under the lock.
fn etcdctl_lock(stage: &Stage, etcd: &Etcd, line: &str) -> Program {
    let mut lock = alone(etcdctl());
    lock.args(["lock", "--", LOCK.trim_end_matches('/'), "sh", "-c", line])
        .env("ETCDCTL_API", "3")
        .env("ETCDCTL_ENDPOINTS", etcd.endpoints());
    stage.run(lock)
}
