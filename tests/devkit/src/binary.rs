//! Binaries of etcd: which `etcd` and `etcdctl` to start.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use crate::lock;

/// Returns the path of the `etcd` to run: `ETCD_BIN`, else one that `cargo xtask` has unpacked, else the one in PATH.
pub fn etcd() -> PathBuf {
    tool("ETCD_BIN", "etcd")
}

/// Returns the `etcdctl` that contends for locks: that of `ETCDCTL_35` first, because 3.4 runs its command although its lease
/// is gone.
pub fn etcdctl() -> PathBuf {
    match env::var_os("ETCDCTL_35") {
        Some(path) => path.into(),
        None => tool("ETCDCTL_BIN", "etcdctl"),
    }
}

/// Returns the path of the `etcdctl` that comes with this `etcd`, for its snapshots.
pub fn etcdctl_of(etcd: &Path) -> PathBuf {
    let neighbour = etcd.with_file_name("etcdctl");
    if neighbour.is_file() {
        neighbour
    } else {
        tool("ETCDCTL_BIN", "etcdctl")
    }
}

/// Makes a command without the variables of this prefix, from which etcd and etcdctl read settings.
pub fn without_settings(program: &Path, prefix: &str) -> Command {
    let mut command = Command::new(program);
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with(prefix)) {
        command.env_remove(name);
    }
    command
}

/// Returns whether this etcd has the flag not to wait for the disk (3.5 has it).
pub(crate) fn knows_no_fsync(etcd: &Path) -> bool {
    static KNOWN: Mutex<BTreeMap<PathBuf, bool>> = Mutex::new(BTreeMap::new());
    *lock(&KNOWN).entry(etcd.to_owned()).or_insert_with(|| {
        let help = Command::new(etcd).arg("--help").output();
        help.is_ok_and(|it| {
            String::from_utf8_lossy(&[it.stdout, it.stderr].concat()).contains("--unsafe-no-fsync")
        })
    })
}

/// Finds a program by its variable, else among those that `cargo xtask` has unpacked, else by PATH.
fn tool(variable: &str, name: &str) -> PathBuf {
    if let Some(path) = env::var_os(variable) {
        return path.into();
    }
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/etcd");
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
