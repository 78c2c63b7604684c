//! What etcdctl shows on one etcd, in words that are the same on every one.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::etcd::etcdctl;

pub(crate) struct Screen {
    address: String,
    /// What the server has chosen itself, in the order in which it came up: ids of leases, members, the cluster.
    ids: Vec<String>,
    /// What was typed and shown.
    pub(crate) shown: Vec<String>,
}

/// How long an etcdctl may take; after that it is ended, and the test says which it was.
const PATIENCE: Duration = Duration::from_secs(60);

/// An etcdctl that goes on; ended when dropped.
pub(crate) struct Running {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Screen {
    pub(crate) fn new(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            ids: Vec::new(),
            shown: Vec::new(),
        }
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(etcdctl());
        command
            .args(words(line))
            .env_clear() // it takes flags from there, too
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .env("ETCDCTL_API", "3")
            .env("ETCDCTL_ENDPOINTS", &self.address)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs one; what it said, as it said it.
    pub(crate) fn quietly(&mut self, line: &str, input: &str) -> String {
        let mut child = self.command(line).spawn().expect("etcdctl runs");
        let mut stdin = child.stdin.take().expect("piped");
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        let watchdog = Watchdog::over(&child);
        let output = child.wait_with_output().expect("etcdctl ends");
        assert!(
            !watchdog.has_bitten(),
            "etcdctl {line}: not within {PATIENCE:?}"
        );
        let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
        // Its log is for nobody to compare: times, and what it did over.
        said.extend(
            String::from_utf8_lossy(&output.stderr)
                .lines()
                .filter(|line| !line.starts_with("{\"level\""))
                .map(|line| format!("{line}\n")),
        );
        if !output.status.success() {
            said += &format!("{}\n", output.status);
        }
        said
    }

    /// Runs one, and shows it.
    pub(crate) fn run(&mut self, line: &str) -> String {
        self.type_in(line, "")
    }

    /// Runs one that reads.
    pub(crate) fn type_in(&mut self, line: &str, input: &str) -> String {
        let said = self.quietly(line, input);
        self.show(line, &said);
        said
    }

    pub(crate) fn show(&mut self, line: &str, said: &str) {
        let shown = self.same_everywhere(&format!("$ etcdctl {line}\n{said}"));
        self.shown.push(shown);
    }

    /// Starts one that goes on.
    pub(crate) fn start(&self, line: &str) -> Running {
        let mut child = self.command(line).spawn().expect("etcdctl runs");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Running { child, output }
    }

    /// Until `line` shows so many lines.
    pub(crate) fn wait_for(&mut self, line: &str, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.quietly(line, "").lines().count() != count {
            assert!(Instant::now() < deadline, "{line}: never {count} lines");
            sleep(Duration::from_millis(20));
        }
    }

    /// Without what is the server's own.
    fn same_everywhere(&mut self, said: &str) -> String {
        let said = said.replace(&self.address, "ADDRESS");
        let mut out = String::new();
        for token in said.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
            let word = token.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
            let after = &token[word.len()..];
            let term = out.ends_with("\"raft_term\":") || out.ends_with("\"RaftTerm\" : ");
            if term && word.parse().is_ok_and(|it: u64| it > 0) {
                out += "TERM";
            } else if is_id(word) {
                let word = word.trim_start_matches('0'); // hexadecimal ones are filled up, or not
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

/// Whether a word is a number that nobody typed, decimal or hexadecimal.
fn is_id(word: &str) -> bool {
    word.len() >= 14
        && word.chars().all(|c| c.is_ascii_hexdigit())
        && word.contains(|c: char| c.is_ascii_digit())
}

/// A line, cut at blanks outside quotes.
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
    /// What it says, up to a line that ends like this, and with it.
    pub(crate) fn said(&mut self, until: &str) -> String {
        let watchdog = Watchdog::over(&self.child);
        let mut said = String::new();
        loop {
            let from = said.len();
            let read = self.output.read_line(&mut said).expect("it says something");
            assert!(
                !watchdog.has_bitten(),
                "never `{until}` within {PATIENCE:?}: {said}"
            );
            if read == 0 || said[from..].trim_end().ends_with(until) {
                return said;
            }
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a process id"), signal).expect("it runs");
    }
}

/// Ends a process that takes too long, unless dropped before.
struct Watchdog {
    bitten: Arc<AtomicBool>,
    /// Its other end waits for this one to go.
    _leash: mpsc::Sender<()>,
}

impl Watchdog {
    fn over(child: &Child) -> Self {
        let (leash, gone) = mpsc::channel::<()>();
        let bitten = Arc::new(AtomicBool::new(false));
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let bites = Arc::clone(&bitten);
        thread::spawn(move || {
            if gone.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
                bites.store(true, Ordering::SeqCst);
                // Nobody has waited for it yet, so its id is still its own.
                let _ = kill_process(pid.expect("a process id"), Signal::KILL);
            }
        });
        Self {
            bitten,
            _leash: leash,
        }
    }

    fn has_bitten(&self) -> bool {
        self.bitten.load(Ordering::SeqCst)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
