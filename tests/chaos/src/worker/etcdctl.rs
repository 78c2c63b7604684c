//! `etcdctl lock` with a command, as scripts use it: a peer under the same faults.
//!
//! Each call starts `etcdctl lock <name> -- <body>`, and etcdctl starts the body once it has the lock. etcdctl neither ends nor
//! signals the body when its lease is gone, so a body says "held" until its end. A body is a process with a connection of its own
//! to the witness, on which it speaks for its worker.

use std::env;
use std::error::Error;
use std::future::Future;
use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use etcd_locked_devkit::binary;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncReadExt};
use tokio::process::{Child, Command};

use super::body::Body;
use super::connection::Message;
use crate::clock::now;
use crate::history::{Ending, Outcome, Said};
use crate::{login, options};

/// How often a body says that it works.
const POLL: Duration = Duration::from_millis(10);

/// One worker's way to start etcdctl.
pub(super) struct Etcdctl {
    endpoints: String,
    body: PathBuf,
    witness: String,
    process: String,
}

impl Etcdctl {
    pub(super) fn new(witness: &str, process: u32) -> io::Result<Self> {
        Ok(Self {
            endpoints: env::var("ETCD_LOCKED_ENDPOINTS").unwrap_or_default(),
            body: env::current_exe()?,
            witness: witness.to_owned(),
            process: process.to_string(),
        })
    }

    /// Makes one call: starts etcdctl, and waits for its end.
    pub(super) async fn call(
        &self,
        name: &str,
        ttl: Duration,
        wait: Option<Duration>,
        body: &Body,
    ) -> Outcome {
        let mut command = self.command(name, ttl, body);
        let called = async { locked(&mut command.spawn()?, body.given_up(wait)).await };
        called.await.unwrap_or_else(|error: io::Error| Outcome::Wrong(error.to_string()))
    }

    fn command(&self, name: &str, ttl: Duration, body: &Body) -> Command {
        // etcdctl warns of variables that it does not know.
        let mut command = binary::without_settings(&binary::etcdctl(), "ETCDCTL_");
        command
            .env("ETCDCTL_USER", login::text())
            .args(["--endpoints", &self.endpoints, "lock"])
            .args(["--ttl", &ttl.as_secs().to_string()])
            .args([&format!("locks/{name}"), "--"])
            .arg(&self.body)
            .args(["body", &self.witness, &self.process])
            .args([&body.call.to_string(), name])
            .arg(body.lasts.as_millis().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.into()
    }
}

/// Waits for the body's begin within the wait, and for the end of etcdctl.
async fn locked(etcdctl: &mut Child, given_up: impl Future<Output = ()>) -> io::Result<Outcome> {
    let (Some(stdout), Some(mut stderr)) = (etcdctl.stdout.take(), etcdctl.stderr.take()) else {
        return Err(io::Error::other("etcdctl without output"));
    };
    let errors = tokio::spawn(async move {
        let mut errors = String::new();
        stderr.read_to_string(&mut errors).await.map(|_| errors)
    });
    // The body has the output of etcdctl, and says there that it begins.
    let mut lines = tokio::io::BufReader::new(stdout).lines();
    let (begun, given_up) = tokio::select! {
        line = lines.next_line() => (line?.is_some(), false),
        () = given_up => {
            terminate(etcdctl);
            // etcdctl may just have got the lock; then the body runs.
            (lines.next_line().await?.is_some(), true)
        }
    };
    let status = etcdctl.wait().await?;
    Ok(match (status.success(), begun, given_up) {
        (true, true, _) => Outcome::Done,
        (_, false, true) => Outcome::Busy,
        _ => {
            let errors = errors.await??;
            let mut lines = errors.lines().filter(|line| !line.trim().is_empty());
            Outcome::Refused(format!("{status}: {}", lines.next_back().unwrap_or_default()))
        }
    })
}

/// Sends SIGTERM: etcdctl takes its key back and ends, unless its command runs.
fn terminate(etcdctl: &Child) {
    let pid = etcdctl.id().and_then(|id| i32::try_from(id).ok());
    if let Some(pid) = pid.and_then(Pid::from_raw) {
        // It fails only for a process that has just ended.
        let _ = kill_process(pid, Signal::TERM);
    }
}

/// Runs a body, as etcdctl starts it.
pub(crate) fn run_body(options: &options::Body) -> Result<(), Box<dyn Error>> {
    let (call, name) = (options.call, &options.name);
    let revision: i64 = env::var("ETCD_LOCK_REV")?.parse()?;
    let (token, held) = (revision << 16, true);
    writeln!(io::stdout(), "begun")?;
    let mut witness = Witness::connect(&options.witness, &options.process)?;
    let tokens = vec![(name.clone(), token)];
    witness.acknowledged(Said::Begun { call, held, tokens })?;
    let name = name.clone();
    let write = Said::Write { call, name, token, held: Some(held) };
    witness.acknowledged(write)?;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(options.millis) {
        witness.say(Said::Polled { call, held })?;
        thread::sleep(POLL);
    }
    let how = Ending::Done;
    witness.say(Said::Ended { call, held, how })?;
    Ok(())
}

/// A body's connection to the witness; the body ends with the witness.
struct Witness {
    write: TcpStream,
    read: BufReader<TcpStream>,
}

impl Witness {
    fn connect(address: &str, process: &str) -> io::Result<Self> {
        let mut write = TcpStream::connect(address)?;
        write.set_nodelay(true)?;
        let read = BufReader::new(write.try_clone()?);
        writeln!(write, "{process}")?;
        Ok(Self { write, read })
    }

    fn say(&mut self, said: Said) -> io::Result<()> {
        let at = now();
        let line = serde_json::to_string(&Message { at, said })?;
        self.write.write_all((line + "\n").as_bytes())
    }

    /// Says something, and waits until the witness knows.
    fn acknowledged(&mut self, said: Said) -> io::Result<()> {
        self.say(said)?;
        match self.read.read_line(&mut String::new())? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}
