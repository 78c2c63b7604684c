//! Database servers for one test: data, socket and log are in a temporary directory, and no port is open.

use std::env;
use std::fs::{self, File};
use std::os::unix::fs::chown;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::geteuid;
use tempfile::TempDir;

use crate::process::{Process, Signal, output};
use crate::{Result, until};

/// Id of the user `nobody`, as which root starts a database, because databases refuse to run as root.
const NOBODY: u32 = 65534;

const LIMIT: Duration = Duration::from_secs(60);

/// Server that ends on a signal when dropped, and whose data is deleted.
#[derive(Debug)]
struct Database {
    server: Process,
    /// Directory, dropped after the server, which writes there.
    dir: TempDir,
    /// Signal that ends it. Not a kill, after which its child processes would live on for a while.
    end: Signal,
}

impl Database {
    /// Starts a server on what was prepared in its directory, and waits until it is `ready`.
    fn start(
        mut serve: Command,
        dir: TempDir,
        end: Signal,
        ready: fn(&Path) -> bool,
    ) -> Result<Self> {
        let log = dir.path().join("log");
        let file = File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        let server = Process::start("a database", &mut serve)?;
        let mut database = Self { server, dir, end };
        let mut ended = false;
        let serves = until("a database serves", LIMIT, || {
            ended = database.server.ended().is_ok_and(|status| status.is_some());
            ended || ready(database.dir.path())
        });
        if serves.is_ok() && !ended {
            return Ok(database);
        }
        let log = fs::read_to_string(log).unwrap_or_default();
        Err(format!("{:?} does not start: {log}", serve.get_program()))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.server.signal(self.end);
        let _ = self.server.wait(LIMIT);
    }
}

/// PostgreSQL server; when dropped, it ends its sessions and itself.
#[derive(Debug)]
pub struct Postgres(Database);

impl Postgres {
    /// Returns true if PostgreSQL is installed.
    pub fn is_installed() -> bool {
        find("initdb").is_ok()
    }

    /// Starts a server with these settings, each as `name=value`. It does not wait for the disk, unless a setting is `fsync=on`.
    pub fn start(settings: &[&str]) -> Result<Self> {
        let (initdb, dir) = (find("initdb")?, place()?);
        let on_data = |program: &str| {
            let mut command = command(&initdb.with_file_name(program), dir.path());
            command.arg("-D").arg(dir.path().join("data"));
            command
        };
        output(on_data("initdb").args(["--username=postgres", "--auth=trust", "--no-sync"]))?;
        let mut serve = on_data("postgres");
        serve.arg("-k").arg(dir.path());
        for setting in ["listen_addresses=", "fsync=off"].iter().chain(settings) {
            serve.args(["-c", setting]);
        }
        let ready = |dir: &Path| {
            let status = fs::read_to_string(dir.join("data/postmaster.pid")).unwrap_or_default();
            status.lines().nth(7).is_some_and(|it| it.trim() == "ready")
        };
        // This signal ends it without a checkpoint. After a kill, its processes would notice only after a while.
        Database::start(serve, dir, Signal::QUIT, ready).map(Self)
    }

    /// Returns the address of its only database, for its superuser.
    pub fn url(&self) -> String {
        let socket = self.0.dir.path().display().to_string().replace('/', "%2F");
        format!("postgres://postgres@{socket}/postgres")
    }
}

/// MariaDB server; it ends when dropped.
#[derive(Debug)]
pub struct MariaDb(Database);

impl MariaDb {
    /// Returns true if MariaDB is installed.
    pub fn is_installed() -> bool {
        find("mariadb-install-db").is_ok() && find("mariadbd").is_ok()
    }

    /// Starts a server. Its commits do not wait for the disk.
    pub fn start() -> Result<Self> {
        let (install, serve, dir) = (find("mariadb-install-db")?, find("mariadbd")?, place()?);
        let on_data = |program: &Path| {
            let mut command = command(program, dir.path());
            let data = dir.path().join("data");
            command.arg("--no-defaults").arg(format!("--datadir={}", data.display()));
            command
        };
        let words = ["--auth-root-authentication-method=normal", "--skip-test-db"];
        output(on_data(&install).args(words))?;
        let mut serve = on_data(&serve);
        serve
            .arg(format!("--socket={}", dir.path().join("socket").display()))
            .args(["--skip-networking", "--innodb-flush-log-at-trx-commit=0"]);
        let ready = |dir: &Path| UnixStream::connect(dir.join("socket")).is_ok();
        Database::start(serve, dir, Signal::TERM, ready).map(Self)
    }

    /// Returns the address of the server, for the user with all rights. There is no database yet.
    pub fn url(&self) -> String {
        let socket = self.0.dir.path().join("socket");
        format!("mysql://root@localhost?socket={}", socket.display())
    }
}

fn place() -> Result<TempDir> {
    let io = |error| format!("no place for a database: {error}");
    let dir = tempfile::tempdir().map_err(io)?;
    if geteuid().is_root() {
        chown(dir.path(), Some(NOBODY), Some(NOBODY)).map_err(io)?;
    }
    Ok(dir)
}

fn command(program: &Path, dir: &Path) -> Command {
    let mut command = Command::new(program);
    let path = env::var_os("PATH").map(|path| ("PATH", path));
    command.env_clear().envs(path).env("LC_ALL", "C").current_dir(dir);
    if geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// Finds a program in PATH or in the folders of servers: Debian and its relatives have a folder for each version of PostgreSQL.
fn find(name: &str) -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<_> = versions.map(|version| version.path().join("bin")).collect();
    let number = |bin: &PathBuf| bin.parent()?.file_name()?.to_str()?.parse::<u32>().ok();
    versions.sort_by_key(|bin| std::cmp::Reverse(number(bin)));
    env::split_paths(&path)
        .chain(versions)
        .chain(["/usr/sbin", "/usr/libexec"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|program| program.is_file())
        .ok_or_else(|| format!("`{name}` is not on PATH: install PostgreSQL, or MariaDB"))
}
