//! PostgreSQL for one test, if it is installed: its data and its socket are in a temporary directory.

use std::env;
use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::geteuid;
use tempfile::TempDir;

use crate::stage::{Program, Stage};

/// The user `nobody`, as which root starts PostgreSQL, because it refuses to run as root.
const NOBODY: u32 = 65534;

pub(crate) struct Postgres {
    stage: Stage,
    server: Program,
    /// The data directory. It drops after the server, which writes there.
    dir: TempDir,
}

impl Postgres {
    /// Starts a server; `None` if PostgreSQL is not installed.
    pub(crate) async fn start() -> Option<Postgres> {
        let programs = installed()?;
        let dir = tempfile::tempdir().expect("a directory");
        if geteuid().is_root() {
            chown(dir.path(), Some(NOBODY), Some(NOBODY)).expect("root may");
        }
        let stage = Stage::new("");
        let mut prepare = command(&programs.join("initdb"), dir.path());
        prepare.args(["--username=postgres", "--auth=trust", "--no-sync"]);
        stage.ends_well(&mut stage.run(prepare)).await;
        let mut serve = command(&programs.join("postgres"), dir.path());
        serve.arg("-k").arg(dir.path());
        serve.args(["-c", "listen_addresses=", "-c", "fsync=off"]);
        let server = stage.run(serve);
        stage.says("ready to accept connections").await;
        Some(Postgres { stage, server, dir })
    }

    pub(crate) fn url(&self) -> String {
        let socket = self.dir.path().display();
        format!("postgres://postgres@localhost/postgres?host={socket}")
    }

    /// Ends the server by a signal; a dropped one is killed.
    pub(crate) async fn end(mut self) {
        self.server.terminate();
        self.stage.ends_well(&mut self.server).await;
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

/// Finds the directory of PostgreSQL's programs, which Debian and its relatives keep outside PATH.
fn installed() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let versions = versions.flatten().map(|version| version.path().join("bin"));
    env::split_paths(&path)
        .chain(versions)
        .find(|bin| bin.join("initdb").is_file() && bin.join("postgres").is_file())
}
