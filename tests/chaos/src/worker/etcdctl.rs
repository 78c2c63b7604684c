//! Peer `etcdctl lock` with a command, as scripts use it, under the same faults.
//!
//! Each call starts `etcdctl lock <name> -- <command>`, and etcdctl starts the command when it has the lock. The worker's body lasts as
//! long as the command. etcdctl neither ends nor signals it when its lease is gone, so the body reports "held" until its end.

use std::env;
use std::io;
use std::process::{Output, Stdio};

use etcd_locked_devkit::binary;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};

use super::body::{Body, Hold};
use super::calls::given_up;
use crate::history::{Asked, Outcome};
use crate::login;

/// Command that prints the revision of the lock, and ends at a line on etcdctl's input, because etcdctl gives it no input.
const COMMAND: &str = "echo $ETCD_LOCK_REV; read -r line < /proc/$PPID/fd/0";

fn etcdctl(asked: &Asked) -> io::Result<Child> {
    // etcdctl warns about variables that it does not know.
    let mut command = binary::without_settings(&binary::etcdctl(), "ETCDCTL_");
    command
        .env("ETCDCTL_USER", login::text())
        .args(["--endpoints", &env::var("ETCD_LOCKED_ENDPOINTS").unwrap_or_default()])
        .args(["lock", "--ttl", &(asked.ttl / 1_000).to_string()])
        .args([&format!("locks/{}", asked.names.concat()), "--", "sh", "-c", COMMAND])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Command::from(command).spawn()
}

pub(super) async fn call(asked: &Asked, body: Body) -> io::Result<Outcome> {
    let mut etcdctl = etcdctl(asked)?;
    let (Some(mut stdin), Some(stdout)) = (etcdctl.stdin.take(), etcdctl.stdout.take()) else {
        return Err(io::Error::other("etcdctl without streams"));
    };
    let mut lines = BufReader::new(stdout).lines();
    let draining = body.draining.clone();
    let (begun, given_up) = tokio::select! {
        line = lines.next_line() => (line?, None),
        outcome = given_up(asked, draining) => {
            terminate(&etcdctl);
            // etcdctl may just have got the lock; then its command runs.
            (lines.next_line().await?, Some(outcome))
        }
    };
    if let Some(revision) = &begun {
        let token = revision.parse::<i64>().map_err(io::Error::other)? << 16;
        let tokens = asked.names.iter().map(|name| (name.clone(), token)).collect();
        body.run_under(Hold { tokens, is_held: Box::new(|| true) }).await;
        // This fails if the command has ended, which its status shows.
        let _ = stdin.write_all(b"\n").await;
    }
    let Output { status, stderr, .. } = etcdctl.wait_with_output().await?;
    Ok(match (begun, given_up) {
        (Some(_), _) if status.success() => Outcome::Done,
        (None, Some(outcome)) => outcome,
        _ => {
            let errors = String::from_utf8_lossy(&stderr);
            let mut lines = errors.lines().filter(|line| !line.trim().is_empty());
            Outcome::Refused(format!("{status}: {}", lines.next_back().unwrap_or_default()))
        }
    })
}

/// Sends SIGTERM: etcdctl deletes its key and ends, unless its command runs.
fn terminate(etcdctl: &Child) {
    let pid = etcdctl.id().and_then(|id| i32::try_from(id).ok());
    if let Some(pid) = pid.and_then(Pid::from_raw) {
        // This fails only for a process that has just ended.
        let _ = kill_process(pid, Signal::TERM);
    }
}
