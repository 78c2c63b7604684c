//! Binaries of etcd: which `etcd`, `etcdctl` and `etcdutl` to start.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use crate::lock;

/// Folders of the etcds that `cargo xtask` keeps below `target/tools/etcd`, the newest first.
const KEPT: [&str; 4] = ["3.7", "3.6", "3.5", "distribution"];

/// Returns the path of the `etcd` to run: `ETCD_BIN`, else the newest that `cargo xtask` keeps, else the one in PATH.
pub fn etcd() -> PathBuf {
    let chosen = env::var_os("ETCD_BIN").map(PathBuf::from);
    chosen.or_else(|| newest("etcd")).unwrap_or_else(|| "etcd".into())
}

/// Returns the etcd of this version, such as `3.5`; `None` if `cargo xtask` has not built it.
pub fn etcd_of(version: &str) -> Option<PathBuf> {
    kept(version, "etcd")
}

/// Returns the `etcdctl` that contends for locks: `ETCDCTL_BIN`, else the newest that `cargo xtask` keeps, else the one beside
/// [`etcd`], else the one in PATH. That of 3.4 runs its command although its lease is gone, so a newer one is better.
pub fn etcdctl() -> PathBuf {
    let chosen = env::var_os("ETCDCTL_BIN").map(PathBuf::from);
    chosen
        .or_else(|| newest("etcdctl"))
        .or_else(|| beside(&etcd(), "etcdctl"))
        .unwrap_or_else(|| "etcdctl".into())
}

pub(crate) fn etcdctl_of(etcd: &Path) -> PathBuf {
    beside(etcd, "etcdctl").unwrap_or_else(etcdctl)
}

/// Returns the tool that restores a snapshot for this `etcd`: `etcdutl`, which comes with 3.5 and later, else `etcdctl`, which
/// restores up to 3.5.
pub(crate) fn etcdutl_of(etcd: &Path) -> PathBuf {
    beside(etcd, "etcdutl").unwrap_or_else(|| etcdctl_of(etcd))
}

/// Makes a command without the variables of this prefix, from which etcd and etcdctl read settings.
pub fn without_settings(program: &Path, prefix: &str) -> Command {
    let mut command = Command::new(program);
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with(prefix)) {
        command.env_remove(name);
    }
    command
}

/// Returns true from 3.5 onwards, where etcd has the flag not to wait for the disk.
pub(crate) fn knows_no_fsync(etcd: &Path) -> bool {
    static KNOWN: Mutex<BTreeMap<PathBuf, bool>> = Mutex::new(BTreeMap::new());
    *lock(&KNOWN).entry(etcd.to_owned()).or_insert_with(|| {
        let help = Command::new(etcd).arg("--help").output();
        help.is_ok_and(|it| {
            String::from_utf8_lossy(&[it.stdout, it.stderr].concat()).contains("--unsafe-no-fsync")
        })
    })
}

fn newest(name: &str) -> Option<PathBuf> {
    KEPT.iter().find_map(|folder| kept(folder, name))
}

fn kept(folder: &str, name: &str) -> Option<PathBuf> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/etcd");
    Some(tools.join(folder).join(name)).filter(|file| file.is_file())
}

fn beside(etcd: &Path, name: &str) -> Option<PathBuf> {
    Some(etcd.with_file_name(name)).filter(|file| file.is_file())
}
