//! Promises of `etcd-locked top`, on real etcd and a terminal.

use std::future::IntoFuture;
use std::process::Command;
use std::time::Duration;

use etcd_locked::{Config, LockGuard, Locks, LossCause};
use etcd_locked_devkit::{Direction, Member, Proxy, Terminal, until};
use tokio::runtime::Runtime;

/// More than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);
/// Less than a request waits for etcd.
const SOON: Duration = Duration::from_secs(3);

/// Starts `top` on a terminal.
fn top(endpoint: &str) -> Terminal {
    let mut command = Command::new(env!("CARGO_BIN_EXE_etcd-locked"));
    command.args(["top", "--every", "200ms", "--endpoints", endpoint]);
    Terminal::start(&command, 20, 100).expect("a terminal")
}

/// Waits until the terminal shows a text, or shows it no longer.
fn await_shown(terminal: &Terminal, text: &str, shown: bool) {
    let holds = || terminal.lines().iter().any(|line| line.contains(text)) == shown;
    until(text, PATIENCE, holds).unwrap_or_else(|_| panic!("{:#?}", terminal.lines()));
}

fn await_word(terminal: &Terminal, word: &str) {
    await_words(terminal, word, 1);
}

/// Waits until it has written a word so many times. It writes what changes.
fn await_words(terminal: &Terminal, word: &str, times: usize) {
    let written = || terminal.written().matches(word).count() >= times;
    until(word, PATIENCE, written).expect("the word");
}

/// Ends it; returns all that it has written.
fn quit(mut terminal: Terminal) -> String {
    terminal.press(b"q").expect("it reads keys");
    let ended = terminal.wait(PATIENCE).expect("it ends");
    assert!(ended.success(), "{:#?}", terminal.lines());
    terminal.written()
}

/// An etcd, and a service that holds a lock in it.
fn held(runtime: &Runtime) -> (Member, LockGuard) {
    let etcd = Member::start().expect("an etcd");
    let config = Config::new([etcd.endpoint()]).service("shop");
    let service = runtime.block_on(Locks::connect(config));
    let call = service.expect("etcd is there").lock("orders/7");
    let held = runtime.block_on(call.into_future()).expect("free");
    (etcd, held)
}

#[test]
fn top_shows_a_name_and_kicks_its_holder() {
    let runtime = Runtime::new().expect("a runtime");
    let (etcd, held) = held(&runtime);
    let mut terminal = top(&etcd.endpoint());
    await_word(&terminal, "orders/7");
    terminal.press(b"\r").expect("it reads keys");
    await_word(&terminal, "holds");
    terminal.press(b"ky").expect("it reads keys");
    let cause = runtime.block_on(held.lost());
    assert_eq!(cause, LossCause::Deleted);
    let text = quit(terminal);
    // The terminal is as it was.
    assert!(text.contains("\x1b[?1049h") && text.contains("\x1b[?1049l"));
}

#[test]
fn top_counts_again_after_its_watch_has_ended() {
    let runtime = Runtime::new().expect("a runtime");
    let (etcd, _held) = held(&runtime);
    let proxy = Proxy::start(etcd.address()).expect("a proxy");
    let terminal = top(&proxy.endpoint());
    await_words(&terminal, "0.0", 1);
    proxy.reset_all();
    // In between there was something else.
    await_words(&terminal, "0.0", 2);
    quit(terminal);
}

#[test]
fn top_is_left_while_etcd_does_not_answer_a_kick() {
    let runtime = Runtime::new().expect("a runtime");
    let (etcd, _held) = held(&runtime);
    let proxy = Proxy::start(etcd.address()).expect("a proxy");
    let mut terminal = top(&proxy.endpoint());
    await_shown(&terminal, "orders/7", true);
    terminal.press(b"\r").expect("it reads keys");
    await_shown(&terminal, "holds", true);
    proxy.freeze(Direction::Answers);
    terminal.press(b"ky").expect("it reads keys");
    await_shown(&terminal, "a kick is under way", true);
    terminal.press(b"q").expect("it reads keys");
    terminal.wait(SOON).expect("it ends");
    let text = terminal.written();
    assert!(
        text.contains("what it has taken away is not known"),
        "{text}"
    );
}

#[test]
fn top_shows_that_its_rows_are_old_until_etcd_answers() {
    let runtime = Runtime::new().expect("a runtime");
    let (etcd, _held) = held(&runtime);
    let proxy = Proxy::start(etcd.address()).expect("a proxy");
    let mut terminal = top(&proxy.endpoint());
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
    let etcd = Member::start().expect("an etcd");
    for signal in ["TERM", "HUP"] {
        let mut command = Command::new("sh");
        let program = env!("CARGO_BIN_EXE_etcd-locked");
        let line = "echo process $$; exec \"$0\" \"$@\"";
        command.args(["-c", line, program, "top", "--endpoints", &etcd.endpoint()]);
        let mut terminal = Terminal::start(&command, 20, 100).expect("a terminal");
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
