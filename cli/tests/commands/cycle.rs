//! Promises of `etcd-locked who` about deadlocks, on real etcd.

use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use etcd_locked::Locks;
use etcd_locked_devkit::{Direction, until};
use serde_json::{Value, json};
use tokio::sync::Barrier;

use crate::scene::{PATIENCE, Scene};

/// What edges begin with.
const EDGES: &str = "locks%s/w/";

/// Contenders and edges that are put by hand.
impl Scene {
    /// Puts a contender; returns its create revision.
    fn contend(&self, key: &str) -> i64 {
        let key = format!("locks/{key}");
        self.put(&key);
        let found = self.etcd.gateway().below(&key).expect("an answer");
        found.first().expect("the key").created
    }

    /// Puts an edge between two contenders of these create revisions.
    fn edge(&self, (held, of): (&str, i64), (waits, created): (&str, i64)) {
        let key = format!("{EDGES}locks/{held}%/locks/{waits}%{created}");
        let put = self.etcd.gateway().put(&key, &of.to_string());
        put.expect("a put");
    }

    /// The cycle that a name is in.
    fn cycle(&self, name: &str) -> Value {
        object(&self.run(&["who", "--json", name]))["cycle"].clone()
    }
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
    let scene = Scene::new();
    let proxy = scene.proxy();
    let both = Arc::new(Barrier::new(2));
    for names in [["a", "b"], ["b", "a"]] {
        let service = scene.service_via(proxy.endpoint(), "shop");
        scene.runtime.spawn(nest(service, names, both.clone()));
    }
    // A service cuts the cycle as soon as it has read it: both edges are to be there for a while, and then to stay.
    let gateway = scene.etcd.gateway();
    let queued = || gateway.keys("locks/").is_ok_and(|keys| keys.len() == 4);
    until("the waiters", PATIENCE, queued).expect("the waiters");
    proxy.delay(Duration::from_millis(700));
    let published = || gateway.keys(EDGES).is_ok_and(|edges| edges.len() == 2);
    until("the edges", PATIENCE, published).expect("the edges");
    proxy.freeze(Direction::Requests);
    for (name, cycle) in [("a", ["a", "b", "a"]), ("b", ["b", "a", "b"])] {
        assert_eq!(scene.cycle(name), json!(cycle));
    }
}

/// Keys that are no cycle as long as one of them is not what an edge says.
#[test]
fn who_takes_no_edge_of_another_incarnation() {
    let scene = Scene::new();
    for ([a, b], off_held, off_waits, cycle) in [
        (["a", "b"], 0, 0, json!(["a", "b", "a"])),
        (["c", "d"], 1, 0, json!([])),
        (["e", "f"], 0, 1, json!([])),
    ] {
        let [a_1, a_2] = ["1f", "2f"].map(|process| format!("{a}/{process}"));
        let [b_1, b_2] = ["1f", "2f"].map(|process| format!("{b}/{process}"));
        let (held_a, held_b) = (scene.contend(&a_1), scene.contend(&b_2));
        let (waits_b, waits_a) = (scene.contend(&b_1), scene.contend(&a_2));
        scene.edge((&a_1, held_a), (&b_1, waits_b));
        scene.edge((&b_2, held_b - off_held), (&a_2, waits_a - off_waits));
        assert_eq!(scene.cycle(a), cycle, "{off_held} {off_waits}");
    }
}

#[test]
fn who_takes_a_chain_for_no_cycle() {
    let scene = Scene::new();
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
    let scene = Scene::new();
    let (held_a, held_b) = (scene.contend("a/1f"), scene.contend("b/2f.p0"));
    let (waits_b, waits_a) = (scene.contend("b/1f.p0"), scene.contend("a/2f"));
    scene.edge(("a/1f", held_a), ("b/1f.p0", waits_b));
    scene.edge(("b/2f.p0", held_b), ("a/2f", waits_a));
    assert_eq!(scene.cycle("a"), json!([]));
}

#[test]
fn who_looks_at_the_oldest_of_many_readers_only() {
    let scene = Scene::new();
    for reader in 100..300 {
        scene.put(&format!("locks/a/{reader:x}.r0"));
    }
    scene.put("locks/a/ffff");
    let output = scene.run(&["who", "--json", "a"]);
    assert!(output.status.success());
    let contenders = object(&output)["contenders"].as_array().map(Vec::len);
    assert_eq!((contenders, &object(&output)["cycle"]), (Some(201), &Value::Null));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("only the oldest 128"), "{said}");
}

#[test]
fn who_without_rights_to_the_edges_shows_the_queue() {
    let scene = Scene::new();
    scene.put("locks/a/1f");
    scene.put("locks/a/2f");
    let gateway = scene.etcd.gateway();
    let set = || {
        gateway.add_user("root", "root", &[])?;
        gateway.add_user("reader", "pw", &["locks/"])?;
        gateway.enable_auth()
    };
    set().expect("users");
    let output = scene.run(&["who", "--json", "a", "--user", "reader:pw"]);
    assert!(output.status.success(), "{output:?}");
    let found = object(&output);
    assert_eq!(found["contenders"].as_array().map(Vec::len), Some(2));
    assert_eq!(found["cycle"], Value::Null);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("deadlock is not known: "), "{said}");
}
