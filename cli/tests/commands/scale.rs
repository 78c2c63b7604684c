//! A list of very many names comes as it is read, in memory that does not grow with it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use etcd_locked::etcd_client::{Client, Txn, TxnOp};

use crate::scene::Scene;

/// Names of the short list, and of the long one.
const MANY: [usize; 2] = [10_000, 100_000];
const BATCH: usize = 100;
/// Lines that the process has not yet written when its memory is read: more than a pipe holds.
const UNWRITTEN: usize = 2_000;

/// Puts the keys of holders from one number up to another.
async fn put(client: &mut Client, from: usize, to: usize) {
    let record = r#"{"host":"h","pid":7,"service":"shop","function":"shop::ship","template":"orders/<id>","queued_since":"2026-01-01T00:00:00.000Z"}"#;
    for first in (from..to).step_by(BATCH) {
        let put = |at: usize| TxnOp::put(format!("locks/orders/{at:06}/7b"), record, None);
        let puts: Vec<_> = (first..(first + BATCH).min(to)).map(put).collect();
        client.txn(Txn::new().and_then(puts)).await.expect("puts");
    }
}

/// Lists as many names as there are; returns how much memory that took at most, in KiB.
fn list(scene: &Scene, names: usize) -> usize {
    let mut ls = scene.command(&["ls", "--json"]);
    let mut ls = ls.stdout(Stdio::piped()).spawn().expect("the command line runs");
    let mut lines = BufReader::new(ls.stdout.take().expect("a pipe")).lines();
    assert_eq!(lines.by_ref().take(names - UNWRITTEN).count(), names - UNWRITTEN);
    let memory = most_memory(ls.id());
    assert_eq!(lines.count(), UNWRITTEN);
    assert!(ls.wait().expect("its end").success());
    memory
}

fn most_memory(process: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let most = most.and_then(|most| most.trim().strip_suffix(" kB"));
    most.expect("memory").parse().expect("a number")
}

#[test]
fn ls_of_many_names_takes_no_more_memory_than_of_few() {
    let scene = Scene::new();
    let runtime = &scene.runtime;
    let client = runtime.block_on(Client::connect([scene.etcd.endpoint()], None));
    let mut client = client.expect("a client");
    let [few, many] = MANY;
    runtime.block_on(put(&mut client, 0, few));
    let short = list(&scene, few);
    runtime.block_on(put(&mut client, few, many));
    let long = list(&scene, many);
    println!("{few} names: {short} KiB; {many} names: {long} KiB");
    assert!(long < short + short / 4, "{short} KiB, then {long} KiB");
}
