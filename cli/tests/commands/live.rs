//! Tests of `etcd-locked top` and `ls --watch`: their promises, on real etcd and a terminal.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use etcd_locked::{LockGuard, LossCause};
use etcd_locked_devkit::{Direction, Proxy, Terminal, until};

use crate::scene::{PATIENCE, SOON, Scene, await_shown, await_written, command, on_terminal};

fn top(endpoint: &str) -> Terminal {
    on_terminal(&command(endpoint, &["top", "--every", "200ms"]))
}

/// Ends the program; returns everything that it has written.
fn quit(mut terminal: Terminal) -> String {
    terminal.press(b"q").expect("it reads keys");
    let ended = terminal.wait(PATIENCE).expect("it ends");
    assert!(ended.success(), "{:#?}", terminal.lines());
    terminal.written()
}

/// Starts an etcd, and a service that holds a lock in it.
fn held() -> (Scene, LockGuard) {
    let scene = Scene::new();
    let held = scene.take(scene.service("shop").lock("orders/7"));
    (scene, held)
}

/// Starts an etcd with a held lock, a proxy in front of it, and `top` behind the proxy.
fn behind_a_proxy() -> (Scene, LockGuard, Proxy, Terminal) {
    let (scene, held) = held();
    let proxy = scene.proxy();
    let terminal = top(&proxy.endpoint());
    (scene, held, proxy, terminal)
}

#[test]
fn top_shows_a_name_and_kicks_its_holder() {
    let (scene, held) = held();
    let mut terminal = top(&scene.etcd.endpoint());
    await_written(&terminal, "orders/7", 1);
    terminal.press(b"\r").expect("it reads keys");
    await_written(&terminal, "holds", 1);
    terminal.press(b"ky").expect("it reads keys");
    let cause = scene.runtime.block_on(held.lost());
    assert_eq!(cause, LossCause::Kicked);
    let text = quit(terminal);
    // The terminal is restored.
    assert!(text.contains("\x1b[?1049h") && text.contains("\x1b[?1049l"));
}

#[test]
fn top_is_left_while_etcd_does_not_answer_a_kick() {
    let (_scene, _held, proxy, mut terminal) = behind_a_proxy();
    await_shown(&terminal, "orders/7", true);
    terminal.press(b"\r").expect("it reads keys");
    await_shown(&terminal, "holds", true);
    proxy.freeze(Direction::Answers);
    terminal.press(b"ky").expect("it reads keys");
    await_shown(&terminal, "a kick is under way", true);
    terminal.press(b"q").expect("it reads keys");
    terminal.wait(SOON).expect("it ends");
    let text = terminal.written();
    assert!(text.contains("what it has taken away is not known"), "{text}");
}

#[test]
fn top_counts_again_after_its_watch_has_ended() {
    let (_scene, _held, proxy, terminal) = behind_a_proxy();
    await_written(&terminal, "0.0", 1);
    proxy.reset_all();
    // In between it showed another value.
    await_written(&terminal, "0.0", 2);
    quit(terminal);
}

#[test]
fn top_shows_that_its_rows_are_old_until_etcd_answers() {
    let (_scene, _held, proxy, mut terminal) = behind_a_proxy();
    await_shown(&terminal, "orders/7", true);
    proxy.refuse();
    proxy.reset_all();
    await_shown(&terminal, "what is shown is old: ", true);
    terminal.press(b"s").expect("it reads keys");
    await_shown(&terminal, "by hold time", true);
    await_shown(&terminal, "what is shown is old: ", true);
    proxy.accept_again().expect("the port is free");
    await_shown(&terminal, "what is shown is old: ", false);
}

#[test]
fn top_gives_the_terminal_back_when_a_signal_ends_it() {
    let scene = Scene::new();
    let top = scene.command(&["top"]);
    for signal in ["TERM", "HUP"] {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo process $$; exec \"$0\" \"$@\""]);
        shell.arg(top.get_program()).args(top.get_args());
        let mut terminal = on_terminal(&shell);
        await_shown(&terminal, "names locked", true);
        let text = terminal.written();
        let process = text.split_whitespace().nth(1).expect("a number");
        let mut kill = Command::new("kill");
        kill.args(["-s", signal, process]);
        assert!(kill.status().expect("`kill` runs").success());
        terminal.wait(PATIENCE).expect("it ends");
        assert!(terminal.written().contains("\x1b[?1049l"), "{signal}");
    }
}

#[test]
fn watch_outlasts_an_outage_and_ends_by_ctrl_c() {
    let scene = Scene::new();
    scene.put("locks/orders/7/1f");
    let proxy = scene.proxy();
    let mut terminal = on_terminal(&command(&proxy.endpoint(), &["ls", "--watch=100ms"]));
    await_shown(&terminal, "orders/7 ", true);
    proxy.refuse();
    proxy.reset_all();
    await_written(&terminal, "etcd-locked: ", 1);
    proxy.accept_again().expect("the port is free");
    await_shown(&terminal, "orders/7 ", true);
    proxy.freeze(Direction::Answers);
    let before = proxy.bytes(Direction::Requests);
    let reads = || proxy.bytes(Direction::Requests) > before;
    until("a read", PATIENCE, reads).expect("a read");
    terminal.press(b"\x03").expect("it has a terminal");
    let ended = terminal.wait(SOON).expect("it ends");
    assert!(ended.success(), "{:#?}", terminal.lines());
}

#[test]
fn watch_ends_each_round_of_objects_with_an_empty_line() {
    let scene = Scene::new();
    scene.put("locks/orders/7/1f");
    let mut watch = scene.command(&["ls", "--watch=100ms", "--json"]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().expect("the command line runs");
    let lines = BufReader::new(watch.stdout.take().expect("a pipe")).lines();
    let lines: Vec<String> = lines.take(4).map(|line| line.expect("text")).collect();
    watch.kill().expect("it ends");
    watch.wait().expect("its end");
    let is_empty: Vec<bool> = lines.iter().map(String::is_empty).collect();
    assert_eq!(is_empty, [false, true, false, true], "{lines:#?}");
}
