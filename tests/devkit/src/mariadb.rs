//! MariaDB of a test's own, if it is installed.

use std::env;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use crate::Result;
use crate::database::{Database, command, place};
use crate::process::{Signal, output};

/// What to do on a machine without it.
const MISSING: &str = "MariaDB is not installed: apt-get install mariadb-server · dnf install mariadb-server · brew install mariadb; \
                       or put `mariadb-install-db` and `mariadbd` on PATH";

/// A server; dropped, it ends.
#[derive(Debug)]
pub struct MariaDb(Database);

impl MariaDb {
    /// Returns whether there is a MariaDB to start.
    pub fn is_installed() -> bool {
        program("mariadb-install-db").is_some() && program("mariadbd").is_some()
    }

    /// Starts a server. Its commits do not wait for the disk.
    pub fn start() -> Result<Self> {
        let install = program("mariadb-install-db").ok_or(MISSING)?;
        let serve = program("mariadbd").ok_or(MISSING)?;
        let dir = place()?;
        let on_data = |program: &Path| {
            let mut command = command(program, dir.path());
            let data = dir.path().join("data");
            command.arg("--no-defaults");
            command.arg(format!("--datadir={}", data.display()));
            command
        };
        let words = ["--auth-root-authentication-method=normal", "--skip-test-db"];
        output(on_data(&install).args(words))?;
        let mut serve = on_data(&serve);
        serve
            .arg(format!("--socket={}", socket(dir.path()).display()))
            .args(["--skip-networking", "--innodb-flush-log-at-trx-commit=0"]);
        let ready = |dir: &Path| UnixStream::connect(socket(dir)).is_ok();
        let server = Database::start("MariaDB", serve, dir, Signal::TERM, ready)?;
        Ok(Self(server))
    }

    /// Returns the address of the server, for root; it has no database yet, for the user that may do anything.
    pub fn url(&self) -> String {
        let socket = socket(self.0.dir());
        format!("mysql://root@localhost?socket={}", socket.display())
    }
}

fn socket(dir: &Path) -> PathBuf {
    dir.join("socket")
}

/// Finds a program, also where systems keep their servers.
fn program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/libexec"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|program| program.is_file())
}
