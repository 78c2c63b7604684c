//! Packages of the distribution as a source of tools: apt downloads them, and they are unpacked without root.

use std::path::Path;
use std::process::Command;

use crate::process::output;
use crate::{Result, workspace};

/// Downloads packages of this machine's distribution, and unpacks them below `dir`; executables are then in `dir/usr/bin`.
pub(crate) fn unpack(packages: &[&str], dir: &Path) -> Result<()> {
    let mut apt_get = Command::new("apt-get");
    apt_get.current_dir(dir).args(["-o", "APT::Sandbox::User=root", "download"]).args(packages);
    output(&mut apt_get).map_err(|error| format!("{error}; run `apt-get update` as root"))?;
    for package in workspace::entries(dir)? {
        if package.extension().is_some_and(|end| end == "deb") {
            output(Command::new("dpkg").arg("-x").arg(package).arg(dir))?;
        }
    }
    Ok(())
}
