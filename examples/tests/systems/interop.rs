//! Row `interop`, a lock shared by many languages: checks the statements of `examples/interop/README.md`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use etcd_client::{Client, EventType, WatchOptions, WatchStream};
use etcd_locked::{Config, Locks};
use tokio::time::{Duration, sleep};

use crate::etcd::{Etcd, etcdctl};
use crate::limit::{run, within};
use crate::stage::{Program, Stage};

const LOCK: &str = "locks/counter/";

#[test]
fn contenders_in_any_language_lose_no_count() {
    let brought = [("go", "INTEROP_GO"), ("aetcd", "INTEROP_PYTHON"), ("jetcd", "INTEROP_JETCD")];
    let mut kinds = vec!["ours", "service", "etcdctl"];
    for (kind, variable) in brought {
        match std::env::var_os(variable) {
            Some(_) => kinds.push(kind),
            None => println!("left out: {kind}, which `cargo xtask examples interop` brings"),
        }
    }
    run(count_together(&kinds, 40));
}

/// Makes contenders count together, and asserts that no count is lost and that the oldest key always goes first.
pub(crate) async fn count_together(kinds: &[&str], many: usize) {
    let etcd = Etcd::start().await;
    let stage = Stage::new(etcd.endpoints());
    let scratch = tempfile::tempdir().expect("a directory");
    let counter = scratch.path().join("counter");
    fs::write(&counter, "0\n").expect("a counter");

    // The test holds the lock until all contenders wait for it.
    let mut client = etcd.client().await;
    let mut events = watch(&client).await;
    let gate = format!("{LOCK}gate");
    client.put(gate.clone(), "", None).await.expect("the gate");
    let start = |kind: &&str| contender(&stage, &etcd, kind, &counter, many);
    let mut contenders: Vec<Program> = kinds.iter().map(start).collect();
    etcd.until_below(LOCK, 1 + kinds.len()).await;
    client.delete(gate, None).await.expect("no gate");
    for contender in &mut contenders {
        stage.ends_well(contender).await;
    }

    let lines = stage.lines();
    let mut rounds: Vec<Round> = lines.iter().filter_map(|line| Round::read(line)).collect();
    rounds.sort_by_key(|round| round.count);
    let counts = rounds.iter().map(|round| round.count);
    let all = kinds.len() * many;
    assert!(counts.eq(1..=all), "each round has a count of its own");
    let last = fs::read_to_string(&counter).expect("the counter");
    assert!(last.trim() == all.to_string(), "the file counts all rounds");
    for kind in kinds {
        let had = rounds.iter().filter(|round| round.kind == *kind).count();
        assert!(had == many, "{kind} has had its rounds");
    }
    let grows = rounds.windows(2).all(|two| two[0].token < two[1].token);
    assert!(grows, "the token grows from round to round");

    let keys = keys(&mut events, rounds.len()).await;
    first_come_first_served(&rounds, &keys);
    assert!(etcd.below(LOCK).await.is_empty(), "no key is left");
}

/// Asserts that the n-th round belongs to the n-th created key.
fn first_come_first_served(rounds: &[Round], keys: &[Key]) {
    let kinds: BTreeMap<&str, &str> = rounds
        .iter()
        .filter_map(|round| Some((round.key.as_deref()?, round.kind.as_str())))
        .collect();
    for (round, key) in rounds.iter().zip(keys) {
        let kind = match key.is_ours {
            true => "ours",
            false => kinds.get(key.text.as_str()).copied().unwrap_or("unknown"),
        };
        assert!(
            round.kind == kind && round.key.as_ref().is_none_or(|text| *text == key.text),
            "round {} should be that of `{kind}`, with {key:?}",
            round.count
        );
    }
    for (key, next) in keys.iter().zip(&rounds[1..]) {
        let waited = next.token >= key.deleted;
        assert!(waited, "round {} should wait for {key:?}", next.count);
    }
    // Without contention there would be no order to check.
    let contended = keys.iter().enumerate().filter(|(at, key)| {
        let later = &keys[at + 1..];
        later.iter().any(|it| it.created < key.deleted)
    });
    let contended = contended.count();
    println!("{} rounds, {contended} of them contended", rounds.len());
    assert!(
        contended >= rounds.len() / 2,
        "another contender waits in at least every other round, not only in {contended}"
    );
}

/// Round of a contender, as it printed it: the count, its kind, its token, and its key if it knows it.
#[derive(Debug)]
struct Round {
    count: usize,
    kind: String,
    token: i64,
    key: Option<String>,
}

impl Round {
    fn read(line: &str) -> Option<Round> {
        let mut words = line.split(' ');
        Some(Round {
            count: words.next()?.parse().ok()?,
            kind: words.next()?.to_owned(),
            token: words.next()?.parse().ok()?,
            key: words.next().map(str::to_owned),
        })
    }
}

/// Key below the lock, with the revisions of its creation and its deletion.
#[derive(Debug)]
struct Key {
    text: String,
    /// True if the key has a record, which only our keys have.
    is_ours: bool,
    created: i64,
    deleted: i64,
}

async fn watch(client: &Client) -> WatchStream {
    let options = WatchOptions::new().with_prefix().with_start_revision(1);
    let watch = client.clone().watch(LOCK, Some(options)).await;
    watch.expect("a watch")
}

/// Reads the events of this many keys until all are deleted; returns the keys in the order of creation.
async fn keys(events: &mut WatchStream, many: usize) -> Vec<Key> {
    let mut keys: Vec<Key> = Vec::new();
    let gone = |keys: &Vec<Key>| keys.iter().filter(|key| key.deleted < i64::MAX).count();
    while gone(&keys) <= many {
        let message = within("all keys are deleted", events.message()).await;
        let message = message.expect("the watch").expect("the watch goes on");
        for event in message.events() {
            let kv = event.kv().expect("an event has a key");
            let text = String::from_utf8_lossy(kv.key()).into_owned();
            match event.event_type() {
                EventType::Put if kv.version() == 1 => keys.push(Key {
                    text,
                    is_ours: kv.value().starts_with(b"{"),
                    created: kv.create_revision(),
                    deleted: i64::MAX,
                }),
                EventType::Put => {}
                EventType::Delete => {
                    let key = keys.iter_mut().rfind(|key| key.text == text);
                    key.expect("it was created").deleted = kv.mod_revision();
                }
            }
        }
    }
    keys.remove(0); // the gate
    keys
}

fn contender(stage: &Stage, etcd: &Etcd, kind: &str, counter: &Path, rounds: usize) -> Program {
    let mut command = match kind {
        "go" => alone(brought("INTEROP_GO")),
        "jetcd" => alone("java"),
        "aetcd" => python(),
        "etcdctl" => shell(),
        _ => alone(env!("CARGO_BIN_EXE_interop")),
    };
    match kind {
        "go" => {}
        "jetcd" => {
            let classes = brought("INTEROP_JETCD");
            command.arg("-cp").arg(classes).arg("Contender");
        }
        "aetcd" => drop(command.arg(source("python/contender.py"))),
        "etcdctl" => drop(command.arg(source("etcdctl.sh"))),
        kind => drop(command.arg(kind)),
    }
    command.arg(counter).arg(rounds.to_string());
    command.envs(["ETCDCTL_ENDPOINTS", "ETCD_LOCKED_ENDPOINTS"].map(|it| (it, etcd.endpoints())));
    stage.run(command)
}

/// Prepares a program without the user's environment: endpoints, a prefix, a proxy. etcdctl also complains about unknown variables.
fn alone(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
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
    Path::new(env!("CARGO_MANIFEST_DIR")).join("interop").join(path)
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
fn others_wait_for_every_key_below_their_name() {
    run(async {
        let etcd = Etcd::start().await;
        let stage = Stage::new(etcd.endpoints());
        let locks = engine(&etcd).await;
        let below = locks.lock("counter/42").await.expect("the lock below");
        let above = locks.lock("counter").try_once().await;
        above.expect("we wait for direct children only").release().await.expect("released");

        let mut theirs = etcdctl_lock(&stage, &etcd, "echo it is in");
        etcd.until_below(LOCK, 2).await;
        sleep(Duration::from_millis(500)).await; // time to catch an etcdctl that does not wait
        assert!(stage.count("it is in") == 0, "etcdctl waits for the lock below",);
        below.release().await.expect("released");
        stage.ends_well(&mut theirs).await;
        stage.says("it is in").await;
        let leases = etcd.client().await.leases().await.expect("leases");
        assert!(leases.leases().len() == 2, "etcdctl leaves a lease, in addition to ours",);
    });
}

/// Starts `etcdctl lock`, which runs a command line under the lock.
fn etcdctl_lock(stage: &Stage, etcd: &Etcd, line: &str) -> Program {
    let mut lock = alone(etcdctl());
    lock.args(["lock", "--", LOCK.trim_end_matches('/'), "sh", "-c", line])
        .env("ETCDCTL_API", "3")
        .env("ETCDCTL_ENDPOINTS", etcd.endpoints());
    stage.run(lock)
}
