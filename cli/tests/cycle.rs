//! Promises of `etcd-locked who` about deadlocks, on real etcd.

use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use etcd_locked::etcd_client::{Client, Txn, TxnOp};
use etcd_locked::{Config, Locks};
use etcd_locked_devkit::{Direction, Member, Proxy, until};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::Barrier;

/// More than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// What edges begin with.
const EDGES: &str = "locks%s/w/";

/// An etcd with contenders and edges that are put by hand.
struct Scene {
    etcd: Member,
    runtime: Runtime,
    client: Client,
}

impl Scene {
    fn new() -> Self {
        let etcd = Member::start().expect("an etcd");
        let runtime = Runtime::new().expect("a runtime");
        let client = runtime.block_on(Client::connect([etcd.endpoint()], None));
        let client = client.expect("etcd is there");
        Self {
            etcd,
            runtime,
            client,
        }
    }

    /// Puts a contender; returns its create revision.
    fn contend(&mut self, key: &str) -> i64 {
        self.put(format!("locks/{key}"), String::new())
    }

    /// Puts an edge between two contenders of these create revisions.
    fn edge(&mut self, (held, of): (&str, i64), (waits, created): (&str, i64)) {
        let key = format!("{EDGES}locks/{held}%/locks/{waits}%{created}");
        self.put(key, of.to_string());
    }

    fn put(&mut self, key: String, value: String) -> i64 {
        let put = self.runtime.block_on(self.client.put(key, value, None));
        put.expect("a put").header().expect("a header").revision()
    }

    fn who(&self, args: &[&str]) -> Output {
        who(&self.etcd, args)
    }

    /// The cycle that a name is in.
    fn cycle(&self, name: &str) -> Value {
        object(&self.who(&[name]))["cycle"].clone()
    }
}

fn who(etcd: &Member, args: &[&str]) -> Output {
    let mut who = Command::new(env!("CARGO_BIN_EXE_etcd-locked"));
    who.args(["who", "--json", "--endpoints", &etcd.endpoint()]);
    who.args(args).output().expect("the command line runs")
}

fn object(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no object: {output:?}"))
}

/// Takes one lock, and inside it the other.
async fn nest(locks: Locks, [outer, inner]: [&'static str; 2], both: Arc<Barrier>) {
    let held = locks.lock(outer).await.expect("free");
    let body = async {
        both.wait().await;
        // One of the two is refused, in the end.
        let _ = locks.lock(inner).wait_forever().await;
    };
    let _ = held.hold(body).await;
}

#[test]
fn who_shows_a_cycle_of_two_services() {
    let etcd = Member::start().expect("an etcd");
    let runtime = Runtime::new().expect("a runtime");
    let proxy = Proxy::start(etcd.address()).expect("a proxy");
    let both = Arc::new(Barrier::new(2));
    for names in [["a", "b"], ["b", "a"]] {
        let service = Locks::connect(Config::new([proxy.endpoint()]).service("shop"));
        let service = runtime.block_on(service).expect("etcd is there");
        runtime.spawn(nest(service, names, both.clone()));
    }
    // A service cuts the cycle as soon as it has read it: both edges are to be there for a while, and then to stay.
    let gateway = etcd.gateway();
    let queued = || gateway.keys("locks/").is_ok_and(|keys| keys.len() == 4);
    until("the waiters", PATIENCE, queued).expect("the waiters");
    proxy.delay(Duration::from_millis(700));
    let published = || gateway.keys(EDGES).is_ok_and(|edges| edges.len() == 2);
    until("the edges", PATIENCE, published).expect("the edges");
    proxy.freeze(Direction::Requests);
    for (name, cycle) in [("a", ["a", "b", "a"]), ("b", ["b", "a", "b"])] {
        assert_eq!(object(&who(&etcd, &[name]))["cycle"], json!(cycle));
    }
}

/// Keys that are no cycle as long as one of them is not what an edge says.
#[test]
fn who_takes_no_edge_of_another_incarnation() {
    for (off_held, off_waits, found) in [(0, 0, true), (1, 0, false), (0, 1, false)] {
        let mut scene = Scene::new();
        let (held_a, held_b) = (scene.contend("a/1f"), scene.contend("b/2f"));
        let (waits_b, waits_a) = (scene.contend("b/1f"), scene.contend("a/2f"));
        scene.edge(("a/1f", held_a), ("b/1f", waits_b));
        scene.edge(("b/2f", held_b - off_held), ("a/2f", waits_a - off_waits));
        let expected = if found {
            json!(["a", "b", "a"])
        } else {
            json!([])
        };
        assert_eq!(scene.cycle("a"), expected, "{off_held} {off_waits}");
    }
}

#[test]
fn who_takes_a_chain_for_no_cycle() {
    let mut scene = Scene::new();
    let held_a = scene.contend("a/1f");
    scene.contend("a/3f");
    scene.contend("b/2f");
    let waits_b = scene.contend("b/1f");
    scene.edge(("a/1f", held_a), ("b/1f", waits_b));
    assert_eq!(scene.cycle("a"), json!([]));
}

/// Of permits no single one is waited for.
#[test]
fn who_follows_no_permit() {
    let mut scene = Scene::new();
    let (held_a, held_b) = (scene.contend("a/1f"), scene.contend("b/2f.p0"));
    let (waits_b, waits_a) = (scene.contend("b/1f.p0"), scene.contend("a/2f"));
    scene.edge(("a/1f", held_a), ("b/1f.p0", waits_b));
    scene.edge(("b/2f.p0", held_b), ("a/2f", waits_a));
    assert_eq!(scene.cycle("a"), json!([]));
}

#[test]
fn who_looks_at_the_oldest_of_many_readers_only() {
    let mut scene = Scene::new();
    let puts = |from: usize| {
        let put = |at| TxnOp::put(format!("locks/a/{at:x}.r0"), "", None);
        Txn::new().and_then((from..from + 100).map(put).collect::<Vec<_>>())
    };
    for from in [100, 200] {
        let put = scene.runtime.block_on(scene.client.txn(puts(from)));
        put.expect("puts");
    }
    scene.contend("a/ffff");
    let output = scene.who(&["a"]);
    assert!(output.status.success());
    let contenders = object(&output)["contenders"].as_array().map(Vec::len);
    assert_eq!(
        (contenders, &object(&output)["cycle"]),
        (Some(201), &Value::Null)
    );
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("only the oldest 128"), "{said}");
}

#[test]
fn who_without_rights_to_the_edges_shows_the_queue() {
    let mut scene = Scene::new();
    scene.contend("a/1f");
    scene.contend("a/2f");
    let gateway = scene.etcd.gateway();
    let set = || {
        gateway.add_user("root", "root", &[])?;
        gateway.add_user("reader", "pw", &["locks/"])?;
        gateway.enable_auth()
    };
    set().expect("users");
    let output = scene.who(&["a", "--user", "reader:pw"]);
    assert!(output.status.success(), "{output:?}");
    let found = object(&output);
    assert_eq!(found["contenders"].as_array().map(Vec::len), Some(2));
    assert_eq!(found["cycle"], Value::Null);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("deadlock is not known: "), "{said}");
}
