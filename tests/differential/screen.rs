//! Screen of etcdctl on one etcd, with ids and addresses replaced by words that are the same on every etcd.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use etcd_locked_devkit::binary::etcdctl;

pub(crate) struct Screen {
    address: String,
    /// Ids of leases, members and the cluster that the server has chosen, in the order of their first appearance.
    ids: Vec<String>,
    /// Commands and their output.
    pub(crate) shown: Vec<String>,
}

/// Limit of an etcdctl command in seconds; after that `timeout` ends it.
const PATIENCE: &str = "60";

/// A running etcdctl, which ends when dropped.
pub(crate) struct Running {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Screen {
    pub(crate) fn new(address: &str) -> Self {
        Self { address: address.to_owned(), ids: Vec::new(), shown: Vec::new() }
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new("timeout");
        command
            .arg(PATIENCE)
            .arg(etcdctl())
            .args(words(line))
            .env_clear() // etcdctl reads flags from there too
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .env("ETCDCTL_API", "3")
            .env("ETCDCTL_ENDPOINTS", &self.address)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs a command without showing it, and returns its output.
    pub(crate) fn quietly(&mut self, line: &str, input: &str) -> String {
        let mut child = self.command(line).spawn().expect("etcdctl runs");
        let mut stdin = child.stdin.take().expect("piped");
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        let output = child.wait_with_output().expect("etcdctl ends");
        assert_ne!(output.status.code(), Some(124), "etcdctl {line}: not within {PATIENCE} s");
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        // Without its log, which has times and retries.
        text.extend(
            String::from_utf8_lossy(&output.stderr)
                .lines()
                .filter(|line| !line.starts_with("{\"level\""))
                .map(|line| format!("{line}\n")),
        );
        if !output.status.success() {
            text += &format!("{}\n", output.status);
        }
        text
    }

    /// Runs a command, and shows it.
    pub(crate) fn run(&mut self, line: &str) -> String {
        self.type_in(line, "")
    }

    /// Runs a command that reads `input`, and shows it.
    pub(crate) fn type_in(&mut self, line: &str, input: &str) -> String {
        let output = self.quietly(line, input);
        self.show(line, &output);
        output
    }

    pub(crate) fn show(&mut self, line: &str, output: &str) {
        let shown = self.normalized(&format!("$ etcdctl {line}\n{output}"));
        self.shown.push(shown);
    }

    /// Starts a command that goes on.
    pub(crate) fn start(&self, line: &str) -> Running {
        let mut child = self.command(line).spawn().expect("etcdctl runs");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Running { child, output }
    }

    /// Waits until the command `line` prints that many lines.
    pub(crate) fn wait_for(&mut self, line: &str, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.quietly(line, "").lines().count() != count {
            assert!(Instant::now() < deadline, "{line}: never {count} lines");
            sleep(Duration::from_millis(20));
        }
    }

    /// Replaces the server's address, ids and term.
    fn normalized(&mut self, text: &str) -> String {
        let text = text.replace(&self.address, "ADDRESS");
        let mut out = String::new();
        for token in text.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
            let word = token.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
            let after = &token[word.len()..];
            let term = out.ends_with("\"raft_term\":") || out.ends_with("\"RaftTerm\" : ");
            if term && word.parse().is_ok_and(|it: u64| it > 0) {
                out += "TERM";
            } else if is_id(word) {
                let word = word.trim_start_matches('0'); // some hexadecimal ids are padded
                let known = self.ids.iter().position(|it| it == word);
                let nth = known.unwrap_or_else(|| {
                    self.ids.push(word.to_owned());
                    self.ids.len() - 1
                });
                out += &format!("ID{nth}");
            } else {
                out += word;
            }
            out += after;
        }
        out
    }
}

/// Returns true for an id that the server has chosen, decimal or hexadecimal. Typed numbers are shorter.
fn is_id(word: &str) -> bool {
    word.len() >= 14
        && word.chars().all(|c| c.is_ascii_hexdigit())
        && word.contains(|c: char| c.is_ascii_digit())
}

/// Splits a line at blanks outside quotes.
fn words(line: &str) -> Vec<String> {
    let parts = line.split('\'').enumerate();
    parts
        .flat_map(|(nth, part)| match nth % 2 {
            0 => part.split_whitespace().map(ToOwned::to_owned).collect(),
            _ => vec![part.to_owned()],
        })
        .collect()
}

impl Running {
    /// Reads its output up to and with a line that ends in `until`.
    pub(crate) fn read_until(&mut self, until: &str) -> String {
        let mut output = String::new();
        loop {
            let from = output.len();
            let read = self.output.read_line(&mut output).expect("its output");
            if read == 0 || output[from..].trim_end().ends_with(until) {
                return output;
            }
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        // It may have ended.
        let _ = kill_process(pid.expect("a process id"), signal);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // `timeout` passes it on to etcdctl.
        self.signal(Signal::TERM);
        let _ = self.child.wait();
    }
}
