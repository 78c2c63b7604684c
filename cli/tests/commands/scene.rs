//! Scene of a test: an etcd, services that lock in it, the command line and its terminal.

use std::future::IntoFuture;
use std::process::{Command, Output};
use std::time::Duration;

use etcd_locked::{Acquire, Config, LockGuard, Locks};
use etcd_locked_devkit::process::text;
use etcd_locked_devkit::{Member, Proxy, Terminal, until};
use serde_json::Value;
use tokio::runtime::Runtime;

/// Time limit, longer than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Shorter than a request waits for etcd.
pub(crate) const SOON: Duration = Duration::from_secs(3);
/// URL of a port without etcd.
pub(crate) const NOWHERE: &str = "http://127.0.0.1:1";

/// etcd, and services that lock in it.
pub(crate) struct Scene {
    pub(crate) etcd: Member,
    pub(crate) runtime: Runtime,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self {
            etcd: Member::start().expect("an etcd"),
            runtime: Runtime::new().expect("a runtime"),
        }
    }

    /// Puts a key without a lease.
    pub(crate) fn put(&self, key: &str) {
        self.etcd.gateway().put(key, "").expect("a put");
    }

    /// Starts a proxy in front of etcd.
    pub(crate) fn proxy(&self) -> Proxy {
        Proxy::start(self.etcd.address()).expect("a proxy")
    }

    pub(crate) fn service(&self, name: &str) -> Locks {
        let config = Config::new([self.etcd.endpoint()]).service(name).wait_forever();
        let locks = self.runtime.block_on(Locks::connect(config));
        locks.expect("etcd is there")
    }

    pub(crate) fn take(&self, call: Acquire) -> LockGuard {
        self.runtime.block_on(call.into_future()).expect("free")
    }

    pub(crate) fn release(&self, held: LockGuard) {
        self.runtime.block_on(held.release()).expect("released");
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        command(&self.etcd.endpoint(), args)
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the command line runs")
    }

    /// Runs it to this exit status, and returns what it prints.
    #[track_caller]
    pub(crate) fn ends(&self, args: &[&str], status: i32) -> String {
        ends(&self.etcd.endpoint(), args, status)
    }

    /// Runs it with `--json`, and returns the objects.
    pub(crate) fn json(&self, args: &[&str]) -> Vec<Value> {
        let output = self.run(&[args, &["--json"]].concat());
        let text = String::from_utf8(output.stdout).expect("text");
        let lines = text.lines().map(serde_json::from_str);
        lines.collect::<Result<_, _>>().expect("an object a line")
    }
}

/// The command line with these arguments, of which the first is the command.
pub(crate) fn command(endpoints: &str, args: &[&str]) -> Command {
    let (first, rest) = args.split_first().expect("a command");
    let mut command = Command::new(env!("CARGO_BIN_EXE_etcd-locked"));
    command.arg(first).args(["--endpoints", endpoints]);
    command.args(rest);
    command
}

/// Runs it to this exit status, and returns what it prints.
#[track_caller]
pub(crate) fn ends(endpoints: &str, args: &[&str], status: i32) -> String {
    let output = command(endpoints, args).output().expect("the command line runs");
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(status), "{args:?}: {printed}");
    printed
}

/// Asserts that all these texts were printed.
#[track_caller]
pub(crate) fn says(printed: &str, all: &[impl AsRef<str>]) {
    for it in all.iter().map(AsRef::as_ref) {
        assert!(printed.contains(it), "`{it}` is not in\n{printed}");
    }
}

pub(crate) fn on_terminal(command: &Command) -> Terminal {
    Terminal::start(command, 20, 100).expect("a terminal")
}

/// Waits until the terminal shows a text, or no longer shows it.
pub(crate) fn await_shown(terminal: &Terminal, text: &str, shown: bool) {
    let holds = || terminal.lines().iter().any(|line| line.contains(text)) == shown;
    until(text, PATIENCE, holds).unwrap_or_else(|_| panic!("{:#?}", terminal.lines()));
}

/// Waits until a text was written this many times. The program writes only what changes.
pub(crate) fn await_written(terminal: &Terminal, text: &str, times: usize) {
    let written = || terminal.written().matches(text).count() >= times;
    until(text, PATIENCE, written).expect("the words");
}
