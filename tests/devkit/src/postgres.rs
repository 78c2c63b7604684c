//! PostgreSQL of its own for a test, if it is installed: data and socket lie in a temporary directory, and no port is open.

use std::env;
use std::fs::{self, File};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::geteuid;
use tempfile::TempDir;

use crate::process::{Process, Signal, output};
use crate::{Result, until};

/// The user `nobody`, as which root starts PostgreSQL, because it refuses to run as root.
const NOBODY: u32 = 65534;

/// How long it may take to start, and to end.
const LIMIT: Duration = Duration::from_secs(60);

/// What to do on a machine without it.
const MISSING: &str = "PostgreSQL is not installed: apt-get install postgresql · dnf install postgresql-server postgresql-contrib · \
                       brew install postgresql; or put `initdb` and `postgres` on PATH";

/// A server; dropped, it ends its sessions and itself.
#[derive(Debug)]
pub struct Postgres {
    server: Process,
    /// Data, socket and log. It drops after the server, which writes there.
    dir: TempDir,
}

impl Postgres {
    /// Returns whether there is a PostgreSQL to start.
    pub fn is_installed() -> bool {
        programs().is_some()
    }

    /// Starts a server with these settings, each as `name=value`. It does not wait for the disk, unless a setting says `fsync=on`.
    pub fn start(settings: &[&str]) -> Result<Self> {
        let programs = programs().ok_or(MISSING)?;
        let io = |error| format!("no place for PostgreSQL: {error}");
        let dir = tempfile::tempdir().map_err(io)?;
        if geteuid().is_root() {
            chown(dir.path(), Some(NOBODY), Some(NOBODY)).map_err(io)?;
        }
        let mut prepare = command(&programs.join("initdb"), dir.path());
        output(prepare.args(["--username=postgres", "--auth=trust", "--no-sync"]))?;
        let mut serve = command(&programs.join("postgres"), dir.path());
        serve.arg("-k").arg(dir.path());
        for setting in ["listen_addresses=", "fsync=off"].iter().chain(settings) {
            serve.args(["-c", setting]);
        }
        let log = File::create(dir.path().join("log")).map_err(io)?;
        serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let server = Process::start("PostgreSQL", &mut serve)?;
        let mut postgres = Self { server, dir };
        postgres.until_ready()?;
        Ok(postgres)
    }

    /// Waits until the server's own file says that it serves.
    fn until_ready(&mut self) -> Result<()> {
        let says = self.dir.path().join("data/postmaster.pid");
        let mut ended = false;
        let ready = until("PostgreSQL serves", LIMIT, || {
            ended = self.server.ended().is_ok_and(|status| status.is_some());
            let status = fs::read_to_string(&says).unwrap_or_default();
            ended || status.lines().nth(7).is_some_and(|it| it.trim() == "ready")
        });
        if ready.is_ok() && !ended {
            return Ok(());
        }
        let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        let last: Vec<_> = log.lines().rev().take(3).collect();
        Err(format!("PostgreSQL does not start: {}", last.join("; ")))
    }

    /// Returns the address of its only database, for its superuser.
    pub fn url(&self) -> String {
        let socket = self.dir.path().display();
        format!("postgres://postgres@localhost/postgres?host={socket}")
    }
}

impl Drop for Postgres {
    /// Asks for an end without a checkpoint: the data go too. If it is killed, its processes notice only after a while.
    fn drop(&mut self) {
        self.server.signal(Signal::QUIT);
        let _ = self.server.wait(LIMIT);
    }
}

/// Prepares a program of PostgreSQL, on its data.
fn command(program: &Path, dir: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .envs(env::var_os("PATH").map(|path| ("PATH", path)))
        .env("LC_ALL", "C")
        .current_dir(dir)
        .arg("-D")
        .arg(dir.join("data"));
    if geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// Finds the directory of PostgreSQL's programs, which Debian and its relatives keep outside PATH, one for each version.
fn programs() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let mut versions: Vec<_> = versions.flatten().map(|version| version.path()).collect();
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    versions.sort_by_key(|path| std::cmp::Reverse(number(path)));
    let versions = versions.into_iter().map(|version| version.join("bin"));
    env::split_paths(&path)
        .chain(versions)
        .find(|bin| bin.join("initdb").is_file() && bin.join("postgres").is_file())
}
