//! Promises of `etcd-locked ls --watch`, on real etcd and a terminal.

use etcd_locked_devkit::process::text;
use etcd_locked_devkit::{Direction, Proxy, Terminal, until};

use crate::scene::{
    NOWHERE, PATIENCE, SOON, Scene, await_shown, await_written, command, on_terminal, run,
};

/// A name that is locked, as the terminal shows it.
const NAME: &str = "orders/7 ";

/// An etcd with that name, the network before it, and a watch.
fn watched() -> (Scene, Proxy, Terminal) {
    let scene = Scene::new();
    scene.put("locks/orders/7/1f");
    let proxy = scene.proxy();
    let terminal = on_terminal(&command(&proxy.endpoint(), &["ls", "--watch=100ms"]));
    await_shown(&terminal, NAME, true);
    (scene, proxy, terminal)
}

#[test]
fn ctrl_c_ends_a_watch_that_etcd_does_not_answer() {
    let (_scene, proxy, mut terminal) = watched();
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
    let (_scene, proxy, terminal) = watched();
    proxy.refuse();
    proxy.reset_all();
    await_written(&terminal, "etcd-locked: ", 1);
    proxy.accept_again().expect("the port is free");
    await_shown(&terminal, NAME, true);
}

#[test]
fn watch_reads_etcd_ten_times_a_second_at_most() {
    let output = run(NOWHERE, &["ls", "--watch=99ms"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
}

/// Once it was the time of the watch; now it would be what the names begin with, and none does.
#[test]
fn time_in_the_place_of_names_is_refused() {
    let output = run(NOWHERE, &["ls", "--watch", "5s"]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("`--watch=5s`"), "{said}");
}
