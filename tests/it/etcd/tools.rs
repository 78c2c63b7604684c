//! Paths of the programs that the tests start: `etcd` and `etcdctl`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the path of the etcd to test with.
pub(super) fn binary() -> PathBuf {
    tool("ETCD_BIN", "etcd")
}

/// Returns the path of the `etcdctl` to contend with. It prefers 3.5, because 3.4 runs its command although its lease is gone.
pub(crate) fn etcdctl() -> PathBuf {
    match env::var_os("ETCDCTL_35") {
        Some(path) => path.into(),
        None => tool("ETCDCTL_BIN", "etcdctl"),
    }
}

/// The `etcdctl` of the version under test, for its snapshots.
pub(super) fn backup() -> Command {
    let neighbour = binary().with_file_name("etcdctl");
    let program = if neighbour.is_file() {
        neighbour
    } else {
        etcdctl()
    };
    let mut command = Command::new(program);
    command.env_remove("ETCDCTL_ENDPOINTS"); // it refuses a flag that the environment has, too
    command
}

/// Finds a program by its variable, else among those that `cargo xtask` has unpacked, else by PATH.
fn tool(variable: &str, name: &str) -> PathBuf {
    if let Some(path) = env::var_os(variable) {
        return path.into();
    }
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/etcd");
    find(&unpacked, name).unwrap_or_else(|| name.into())
}

/// Finds a file by name below a directory: the first in the order of paths, so `current` precedes `distribution`.
fn find(dir: &Path, name: &str) -> Option<PathBuf> {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(dir)
        .ok()?
        .flatten()
        .map(|it| it.path())
        .collect();
    entries.sort();
    entries.into_iter().find_map(|path| {
        if path.is_dir() {
            find(&path, name)
        } else {
            path.file_name()
                .is_some_and(|it| it == name)
                .then_some(path)
        }
    })
}

/// Returns whether this etcd has the flag not to wait for the disk (3.5 has it).
pub(super) fn knows_no_fsync() -> bool {
    static KNOWS: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *KNOWS.get_or_init(|| {
        let help = Command::new(binary()).arg("--help").output();
        help.is_ok_and(|it| {
            String::from_utf8_lossy(&[it.stdout, it.stderr].concat()).contains("--unsafe-no-fsync")
        })
    })
}
