//! Database server of one's own, for tests, benches and xtask: data, socket and log lie in a temporary directory. The
//! caller chooses the programs, and by their options keeps them from opening a port.

use std::env;
use std::fs::{self, File};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::geteuid;
use tempfile::TempDir;

use crate::process::{Process, Signal};
use crate::{Result, until};

/// The user `nobody`, as which root starts a database, because databases refuse to run as root.
const NOBODY: u32 = 65534;

/// How long it may take to start, and to end.
const LIMIT: Duration = Duration::from_secs(60);

/// A server; dropped, it is asked to end by a signal, and its data go too.
#[derive(Debug)]
pub(crate) struct Database {
    server: Process,
    /// It drops after the server, which writes there.
    dir: TempDir,
    /// No kill: its own processes would outlast it for a while.
    end: Signal,
}

impl Database {
    /// Starts a server on what was prepared in its directory, and waits until it is `ready`. `end` is the signal for its end.
    pub(crate) fn start(
        name: &str,
        mut serve: Command,
        dir: TempDir,
        end: Signal,
        ready: impl Fn(&Path) -> bool,
    ) -> Result<Self> {
        let log = dir.path().join("log");
        let file = File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        let server = Process::start(name, &mut serve)?;
        let mut database = Self { server, dir, end };
        let mut ended = false;
        let serves = until(&format!("{name} serves"), LIMIT, || {
            ended = database.server.ended().is_ok_and(|status| status.is_some());
            ended || ready(database.dir.path())
        });
        let why = match serves {
            Ok(()) if !ended => return Ok(database),
            Ok(()) => "it has ended".to_owned(),
            Err(error) => error,
        };
        let log = fs::read_to_string(log).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        let last = &lines[lines.len().saturating_sub(3)..];
        Err(format!("{name} does not start: {why}: {}", last.join("; ")))
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.server.signal(self.end);
        let _ = self.server.wait(LIMIT);
    }
}

/// Makes a directory that the server may write into.
pub(crate) fn place() -> Result<TempDir> {
    let io = |error| format!("no place for a database: {error}");
    let dir = tempfile::tempdir().map_err(io)?;
    if geteuid().is_root() {
        chown(dir.path(), Some(NOBODY), Some(NOBODY)).map_err(io)?;
    }
    Ok(dir)
}

/// Prepares a program of a database, to run in its directory.
pub(crate) fn command(program: &Path, dir: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .envs(env::var_os("PATH").map(|path| ("PATH", path)))
        .env("LC_ALL", "C")
        .current_dir(dir);
    if geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}
