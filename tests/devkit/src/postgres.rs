//! PostgreSQL of a test's own, if it is installed.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::Result;
use crate::database::{self, Database, place};
use crate::process::{Signal, output};

/// What to do on a machine without it.
const MISSING: &str = "PostgreSQL is not installed: apt-get install postgresql · dnf install postgresql-server postgresql-contrib · \
                       brew install postgresql; or put `initdb` and `postgres` on PATH";

/// A server; dropped, it ends its sessions and itself.
#[derive(Debug)]
pub struct Postgres(Database);

impl Postgres {
    /// Returns whether there is a PostgreSQL to start.
    pub fn is_installed() -> bool {
        programs().is_some()
    }

    /// Starts a server with these settings, each as `name=value`. It does not wait for the disk, unless a setting says `fsync=on`.
    pub fn start(settings: &[&str]) -> Result<Self> {
        let programs = programs().ok_or(MISSING)?;
        let dir = place()?;
        let on_data = |program: &str| {
            let mut command = database::command(&programs.join(program), dir.path());
            command.arg("-D").arg(dir.path().join("data"));
            command
        };
        output(on_data("initdb").args(["--username=postgres", "--auth=trust", "--no-sync"]))?;
        let mut serve = on_data("postgres");
        serve.arg("-k").arg(dir.path());
        for setting in ["listen_addresses=", "fsync=off"].iter().chain(settings) {
            serve.args(["-c", setting]);
        }
        // An end without a checkpoint. If it is killed, its processes notice only after a while.
        let server = Database::start("PostgreSQL", serve, dir, Signal::QUIT, is_ready)?;
        Ok(Self(server))
    }

    /// Returns the address of its only database, for its superuser.
    pub fn url(&self) -> String {
        let socket = self.0.dir().display();
        format!("postgres://postgres@localhost/postgres?host={socket}")
    }
}

/// Returns whether the server's own file says that it serves.
fn is_ready(dir: &Path) -> bool {
    let status = fs::read_to_string(dir.join("data/postmaster.pid")).unwrap_or_default();
    status.lines().nth(7).is_some_and(|it| it.trim() == "ready")
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
