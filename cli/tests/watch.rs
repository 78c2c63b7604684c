//! Promises of `etcd-locked ls --watch`, on real etcd and a terminal.

use std::process::Command;
use std::time::Duration;

use etcd_locked_devkit::{Direction, Member, Proxy, Terminal, until};

/// More than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);
/// Less than a read waits for etcd.
const SOON: Duration = Duration::from_secs(3);

/// An etcd with a name that is locked, the network before it, and a watch.
fn watched() -> (Member, Proxy, Terminal) {
    let etcd = Member::start().expect("an etcd");
    let put = etcd.gateway().put("locks/orders/7/1f", "");
    put.expect("a put");
    let proxy = Proxy::start(etcd.address()).expect("a proxy");
    let mut ls = Command::new(env!("CARGO_BIN_EXE_etcd-locked"));
    ls.args(["ls", "--watch=100ms", "--endpoints", &proxy.endpoint()]);
    let terminal = Terminal::start(&ls, 20, 100).expect("a terminal");
    await_name(&terminal);
    (etcd, proxy, terminal)
}

fn await_name(terminal: &Terminal) {
    let shows = || {
        let lines = terminal.lines();
        lines.iter().any(|line| line.starts_with("orders/7 "))
    };
    until("the name", PATIENCE, shows).expect("the name");
}

#[test]
fn ctrl_c_ends_a_watch_that_etcd_does_not_answer() {
    let (_etcd, proxy, mut terminal) = watched();
    proxy.freeze(Direction::Answers);
    let before = proxy.bytes(Direction::Requests);
    let reads = || proxy.bytes(Direction::Requests) > before;
    until("a read", PATIENCE, reads).expect("a read");
    terminal.press(b"\x03").expect("it has a terminal");
    let ended = terminal.wait(SOON).expect("it ends");
    assert!(ended.success(), "{:#?}", terminal.lines());
}

#[test]
fn watch_goes_on_after_an_outage() {
    let (_etcd, proxy, terminal) = watched();
    proxy.refuse();
    proxy.reset_all();
    let says_so = || terminal.written().contains("etcd-locked: ");
    until("an error", PATIENCE, says_so).expect("an error");
    proxy.accept_again().expect("the port is free");
    await_name(&terminal);
}

#[test]
fn watch_reads_etcd_ten_times_a_second_at_most() {
    let mut ls = Command::new(env!("CARGO_BIN_EXE_etcd-locked"));
    let output = ls.args(["ls", "--watch=99ms"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

/// Once it was the time of the watch; now it would be what the names begin with, and none does.
#[test]
fn time_in_the_place_of_names_is_refused() {
    let mut ls = Command::new(env!("CARGO_BIN_EXE_etcd-locked"));
    let args = ["ls", "--watch", "5s", "--endpoints", "http://127.0.0.1:1"];
    let output = ls.args(args).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("`--watch=5s`"), "{said}");
}
