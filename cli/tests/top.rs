//! Promises of `etcd-locked top`, on real etcd and a terminal that `script` makes.

use std::future::IntoFuture;
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use etcd_locked::{Config, LockGuard, Locks, LossCause};
use etcd_locked_devkit::{Member, Proxy};
use tokio::runtime::Runtime;

/// More than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// A `top` that runs.
struct Screen {
    script: Child,
    keys: ChildStdin,
    /// All that it has written, again after each piece.
    shown: Receiver<String>,
    reader: JoinHandle<String>,
}

impl Screen {
    fn start(endpoint: &str) -> Self {
        let program = env!("CARGO_BIN_EXE_etcd-locked");
        let top =
            format!("stty rows 20 cols 100 && {program} top --every 200ms --endpoints {endpoint}");
        let mut script = Command::new("script")
            .args(["-qec", &top, "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("`script` (bsdutils)");
        let mut screen = script.stdout.take().expect("a pipe");
        let keys = script.stdin.take().expect("a pipe");
        let (shows, shown) = channel();
        let reader = std::thread::spawn(move || {
            let mut text = Vec::new();
            let mut bytes = [0; 4096];
            while let Ok(many @ 1..) = screen.read(&mut bytes) {
                text.extend(&bytes[..many]);
                let _ = shows.send(String::from_utf8_lossy(&text).into_owned());
            }
            String::from_utf8_lossy(&text).into_owned()
        });
        Self {
            script,
            keys,
            shown,
            reader,
        }
    }

    fn await_word(&self, word: &str) {
        self.await_words(word, 1);
    }

    /// Waits until it has written a word so many times. It writes what changes.
    fn await_words(&self, word: &str, times: usize) {
        let end = Instant::now() + PATIENCE;
        let left = || end.saturating_duration_since(Instant::now());
        let text = || self.shown.recv_timeout(left()).expect("the word");
        while text().matches(word).count() < times {}
    }

    fn press(&mut self, keys: &[u8]) {
        self.keys.write_all(keys).expect("it reads keys");
    }

    /// Ends it; returns all that it has written.
    fn quit(mut self) -> String {
        self.press(b"q");
        let ended = self.script.wait().expect("it ends");
        let text = self.reader.join().expect("no panic");
        assert!(ended.success(), "{text}");
        text
    }
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
    let mut screen = Screen::start(&etcd.endpoint());
    screen.await_word("orders/7");
    screen.press(b"\r");
    screen.await_word("holds");
    screen.press(b"ky");
    let cause = runtime.block_on(held.lost());
    assert_eq!(cause, LossCause::Deleted);
    let text = screen.quit();
    // The terminal is as it was.
    assert!(text.contains("\x1b[?1049h") && text.contains("\x1b[?1049l"));
}

#[test]
fn top_counts_again_after_its_watch_has_ended() {
    let runtime = Runtime::new().expect("a runtime");
    let (etcd, _held) = held(&runtime);
    let proxy = Proxy::start(etcd.address()).expect("a proxy");
    let screen = Screen::start(&proxy.endpoint());
    screen.await_words("0.0", 1);
    proxy.reset_all();
    // In between there was something else.
    screen.await_words("0.0", 2);
    screen.quit();
}
