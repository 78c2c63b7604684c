//! etcd binaries to run: the user's choice, those in `PATH`, those that Go builds, or the distribution's.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use semver::{Version, VersionReq};

use crate::process::output;
use crate::{Result, apt, go, say, workspace};

/// Versions that Go builds from the modules in `tests/etcd`, the newest first.
const BUILT: [&str; 3] = ["3.7", "3.6", "3.5"];

/// The oldest version that is supported.
const OLDEST: Version = Version::new(3, 4, 0);

/// A server and a client of the same origin.
#[derive(Clone, Debug)]
pub(crate) struct Etcd {
    pub(crate) server: PathBuf,
    pub(crate) ctl: PathBuf,
    pub(crate) version: Version,
}

/// Runs `cargo xtask etcd [choice]`: returns the variable that tests read, as a shell assignment.
pub(crate) fn locate(choice: Option<&Choice>) -> Result<String> {
    let etcd = choice.map_or_else(Etcd::find, Choice::find)?;
    Ok(format!("ETCD_BIN={}", etcd.server.display()))
}

/// Choice of an etcd, as `--etcd` says it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Choice {
    /// The newest that Go builds.
    Newest,
    /// The first one that matches: `3.7` and `3.7.3` both match 3.7.3.
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
            _ => VersionReq::parse(&format!("={text}")).map(Self::Version).map_err(|_| {
                "write `newest`, a version such as 3.7 or 3.5.35, or the path of an etcd".to_owned()
            }),
        }
    }
}

impl Choice {
    /// Finds that etcd, or brings it below `target/tools`.
    pub(crate) fn find(&self) -> Result<Etcd> {
        let etcd = match self {
            Self::Newest => built(BUILT[0])?,
            Self::Version(version) => of_version(version)?,
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
}

/// Finds an etcd of this version: the one of `ETCD_BIN`, one that Go builds, the one in `PATH`, or the distribution's.
fn of_version(version: &VersionReq) -> Result<Etcd> {
    let is = |etcd: &Etcd| version.matches(&etcd.version);
    if let Some(etcd) = Etcd::chosen()?.filter(is) {
        return Ok(etcd);
    }
    let mut others = Vec::new();
    for minor in BUILT {
        let pinned = pinned(minor)?;
        if !version.matches(&pinned) {
            others.push(pinned.to_string());
            continue;
        }
        match built(minor) {
            Ok(etcd) => return Ok(etcd),
            Err(reason) => others.push(reason),
        }
    }
    if let Some(etcd) = Etcd::installed().filter(is) {
        return Ok(etcd);
    }
    match distribution() {
        Ok(etcd) if is(&etcd) => return Ok(etcd),
        Ok(etcd) => others.push(etcd.version.to_string()),
        Err(reason) => others.push(reason),
    }
    Err(format!(
        "no etcd {} is available, only:\n   {}\nset ETCD_BIN to one, or give its path",
        version.to_string().trim_start_matches('='),
        others.join("\n   ")
    ))
}

impl Etcd {
    /// Finds an etcd: `ETCD_BIN`, else the one in `PATH`, else the newest that Go builds, else the distribution's package.
    pub(crate) fn find() -> Result<Self> {
        let etcd = match Self::chosen()?.or_else(Self::installed) {
            Some(etcd) => etcd,
            None => built(BUILT[0]).or_else(|no_go| {
                say::note(&no_go);
                distribution().map_err(|no_package| {
                    format!(
                        "no etcd is available:\n   {no_go}\n   {no_package}\ninstall one (apt-get install etcd-server \
                         etcd-client · dnf install etcd · brew install etcd) or set ETCD_BIN"
                    )
                })
            })?,
        };
        etcd.announce();
        Ok(etcd)
    }

    fn announce(&self) {
        say::note(format_args!("etcd {}: {}", self.version, self.server.display()));
    }

    fn chosen() -> Result<Option<Self>> {
        let Some(server) = env::var_os("ETCD_BIN").map(PathBuf::from) else {
            return Ok(None);
        };
        Self::with_its_ctl(server)
            .map(Some)
            .map_err(|error| format!("{error}; ETCD_BIN must name an etcd server, or be unset"))
    }

    /// Adds the `etcdctl` to a server: the user's choice, else the one in its folder, else the one in `PATH`.
    fn with_its_ctl(server: PathBuf) -> Result<Self> {
        let ctl = env::var_os("ETCDCTL_BIN")
            .map(PathBuf::from)
            .or_else(|| Some(server.with_file_name("etcdctl")).filter(|ctl| ctl.is_file()))
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

    fn kept(folder: &str) -> Result<Self> {
        let home = home(folder);
        Self::new(home.join("etcd"), home.join("etcdctl"))
    }

    /// Runs the server to read its version.
    fn new(server: PathBuf, ctl: PathBuf) -> Result<Self> {
        let mut command = Command::new(&server);
        // etcd 3.4 requires this on arm64, and ignores it elsewhere.
        command.arg("--version").env("ETCD_UNSUPPORTED_ARCH", "arm64");
        let version = version_in(&output(&mut command)?)
            .ok_or_else(|| format!("`{}` does not print its version", server.display()))?;
        Ok(Self { server, ctl, version })
    }
}

/// Returns the first word that parses as a version, in a text such as `etcd Version: 3.7.3`.
fn version_in(text: &str) -> Option<Version> {
    let mut words = text.split_whitespace();
    words.find_map(|word| Version::parse(word).ok())
}

pub(crate) fn in_path(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// Returns an etcd of this version, built once from its module in `tests/etcd`.
fn built(line: &str) -> Result<Etcd> {
    let version = pinned(line)?;
    if let Ok(etcd) = Etcd::kept(line)
        && etcd.version == version
    {
        return Ok(etcd);
    }
    say::note(format_args!(
        "building etcd {version} with Go, which takes about a minute, into {}",
        home(line).display()
    ));
    let bring = |scratch: &Path| {
        for (package, name) in [("server", "etcd"), ("etcdctl", "etcdctl"), ("etcdutl", "etcdutl")]
        {
            let package = format!("go.etcd.io/etcd/{package}/v3");
            go::build(&module(line), &package, &scratch.join(name))?;
        }
        Ok(scratch.to_owned())
    };
    keep(line, bring).map_err(|reason| format!("etcd {version} was not built: {reason}"))
}

/// Returns the version that a module in `tests/etcd` pins.
fn pinned(line: &str) -> Result<Version> {
    let file = module(line).join("go.mod");
    let text = workspace::read(&file)?;
    let server = text.split_once("go.etcd.io/etcd/server/v3 v");
    server
        .and_then(|(_, rest)| version_in(rest))
        .ok_or_else(|| format!("{} pins no server", file.display()))
}

fn module(line: &str) -> PathBuf {
    workspace::root().join("tests/etcd").join(line)
}

/// Returns the etcd of the distribution's packages, unpacked once.
fn distribution() -> Result<Etcd> {
    const FOLDER: &str = "distribution";
    if let Ok(etcd) = Etcd::kept(FOLDER) {
        return Ok(etcd);
    }
    say::note(format_args!(
        "unpacking the distribution's etcd (apt-get download, dpkg -x) into {}",
        home(FOLDER).display()
    ));
    let packages = ["etcd-server", "etcd-client"];
    let bring = |scratch: &Path| {
        let bin = apt::distribution(scratch, &packages)?;
        let etcd = Etcd::new(bin.join("etcd"), bin.join("etcdctl"))?;
        match etcd.version >= OLDEST {
            true => Ok(bin),
            false => Err(format!("it is only {}", etcd.version)),
        }
    };
    keep(FOLDER, bring).map_err(|reason| format!("the distribution's etcd: {reason}"))
}

/// Returns the folder of an etcd that xtask keeps. The devkit looks there too.
fn home(folder: &str) -> PathBuf {
    workspace::tools().join("etcd").join(folder)
}

/// Calls `bring` with a scratch folder, then moves the binaries from the folder that it returns to `home(folder)`.
fn keep(folder: &str, bring: impl FnOnce(&Path) -> Result<PathBuf>) -> Result<Etcd> {
    let home = home(folder);
    let io = workspace::failed_at(&home);
    fs::create_dir_all(&home).map_err(io)?;
    let scratch = tempfile::tempdir_in(workspace::tools()).map_err(io)?;
    let from = bring(scratch.path())?;
    // Each file is renamed whole, so a second xtask never finds a partial file. The server moves last: once it is there, all are.
    for name in ["etcdutl", "etcdctl", "etcd"] {
        if from.join(name).is_file() {
            fs::rename(from.join(name), home.join(name)).map_err(io)?;
        }
    }
    Etcd::kept(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_versions_in_etcds_output() {
        for (text, version) in [
            ("etcd Version: 3.4.23\nGo Version: go1.19.8", "3.4.23"),
            ("etcd Version: 3.8.0-rc.1\nGit SHA: Not provided", "3.8.0-rc.1"),
        ] {
            assert_eq!(version_in(text), Version::parse(version).ok(), "{text}");
        }
        assert_eq!(version_in("API version: 3.4"), None);
    }

    #[test]
    fn every_module_pins_its_version() {
        for line in BUILT {
            let Ok(Choice::Version(of_line)) = line.parse() else {
                panic!("`{line}` is not a version");
            };
            let version = pinned(line).expect("a pinned version");
            assert!(of_line.matches(&version), "{version} in {line}");
        }
    }

    #[test]
    fn a_version_is_what_it_begins_with() {
        for (text, is) in
            [("3", true), ("3.7", true), ("3.7.3", true), ("3.4", false), ("3.7.1", false)]
        {
            let Ok(Choice::Version(version)) = text.parse() else {
                panic!("`{text}` is not a version");
            };
            assert_eq!(version.matches(&Version::new(3, 7, 3)), is, "{text}");
        }
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
