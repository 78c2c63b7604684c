//! A PostgreSQL of the test's own, where it is installed: in a directory that goes with it, at a socket in there.

use std::env;
use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::geteuid;
use tempfile::TempDir;

use crate::stage::{Program, Stage};

/// It does not run as root, who may give it to somebody else.
const NOBODY: u32 = 65534;

pub(crate) struct Postgres {
    stage: Stage,
    server: Program,
    /// After the server, which writes there.
    dir: TempDir,
}

impl Postgres {
    /// None where it is not installed.
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

    /// In peace; dropped, it is killed.
    pub(crate) async fn end(mut self) {
        self.server.terminate();
        self.stage.ends_well(&mut self.server).await;
    }
}

/// A program of PostgreSQL, on its data.
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

/// Where its programs are: Debian and its relatives have them in a place of their own.
fn installed() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let versions = versions.flatten().map(|version| version.path().join("bin"));
    env::split_paths(&path)
        .chain(versions)
        .find(|bin| bin.join("initdb").is_file() && bin.join("postgres").is_file())
}
