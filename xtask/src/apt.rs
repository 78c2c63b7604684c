//! apt source of tools: the distribution's packages, unpacked without root and without installing them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::output;
use crate::{Result, workspace};

/// Unpacks packages of this machine's distribution below `dir`, and returns the directory of the executables.
pub(crate) fn distribution(dir: &Path, packages: &[&str]) -> Result<PathBuf> {
    if download(Command::new("apt-get"), dir, packages).is_err() {
        // The machine's package lists are probably missing. Updating them needs root, so xtask uses lists of its own.
        let state = State::new()?;
        state.update()?;
        download(state.apt_get(), dir, packages)?;
    }
    unpack(dir)
}

fn download(mut apt_get: Command, dir: &Path, packages: &[&str]) -> Result<()> {
    output(
        apt_get.current_dir(dir).args(["-o", "APT::Sandbox::User=root", "download"]).args(packages),
    )
    .map(drop)
}

fn unpack(dir: &Path) -> Result<PathBuf> {
    for package in workspace::entries(dir)?
        .into_iter()
        .filter(|path| path.extension().is_some_and(|end| end == "deb"))
    {
        output(Command::new("dpkg").arg("-x").arg(package).arg(dir))?;
    }
    Ok(dir.join("usr/bin"))
}

/// Private apt state: package lists and caches, over the machine's sources, keys and proxies.
struct State {
    dir: tempfile::TempDir,
}

impl State {
    fn new() -> Result<Self> {
        let dir = tempfile::tempdir_in(workspace::tools())
            .map_err(|error| format!("no directory for apt: {error}"))?;
        let state = Self { dir };
        state.fill().map_err(|error| format!("no private state for apt: {error}"))?;
        Ok(state)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn fill(&self) -> std::io::Result<()> {
        for name in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(self.path(name))?;
        }
        // Package lists only, no update hooks of the machine, and no long wait for a mirror that does not respond.
        let conf = format!(
            "\
Dir::State::Lists \"{}\";
Dir::Cache \"{}\";
Acquire::Languages \"none\";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled \"false\";
Acquire::IndexTargets::deb::CNF::DefaultEnabled \"false\";
Acquire::IndexTargets::deb-src::Sources::DefaultEnabled \"false\";
Acquire::Retries \"1\";
Acquire::http::Timeout \"20\";
Acquire::https::Timeout \"20\";
APT::Sandbox::User \"root\";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
",
            self.path("lists").display(),
            self.path("cache").display()
        );
        fs::write(self.path("apt.conf"), conf)
    }

    fn apt_get(&self) -> Command {
        let mut apt_get = Command::new("apt-get");
        apt_get.arg("-c").arg(self.path("apt.conf"));
        apt_get
    }

    fn update(&self) -> Result<()> {
        output(self.apt_get().arg("update")).map(drop)
    }
}
